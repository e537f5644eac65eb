"""Rows of GPU activity: from records such as kineto and Proton tell; from a real device in tests/gpu."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.candidate.gpu_profiler import (
    GAPS,
    NAMELESS,
    Activity,
    KernelTime,
    NothingTraced,
    _shown,
    activities_of,
    kernel_times,
    measure,
    rows_of_activities,
    rows_of_kernel_times,
)
from hillclimb.harness.candidate.profiler import MIN_SHARE, REST, ProfileRow
from hillclimb.harness.channel.profile_limits import MAX_NAME_CHARS, MAX_ROWS, UNNAMEABLE
from hillclimb.harness.profile.rows import parse_rows

NAMES = st.one_of(
    st.sampled_from(["softmax_kernel", "Memset (Device)", "x" * 400, ""]), st.text(max_size=300)
)
TIMES = st.integers(0, 10**12)


@dataclass(frozen=True)
class Event:
    """As much of kineto's event as torch 2.11 has; `NewEvent` is torch 2.15's."""

    _name: str
    _start: int
    _end: int
    _device: str = "CUDA"
    _annotation: bool = False

    def name(self) -> str:
        return self._name

    def start_ns(self) -> int:
        return self._start

    def end_ns(self) -> int:
        return self._end

    def device_type(self) -> Any:
        return SimpleNamespace(name=self._device)

    def is_user_annotation(self) -> bool:
        return self._annotation


@dataclass(frozen=True)
class NewEvent(Event):
    _kind: str = "kernel"

    def activity_type(self) -> str:
        return self._kind


def valid(rows: list[ProfileRow]) -> dict[str, ProfileRow]:
    """What the judge demands of rows, and that they come in order."""
    parse_rows(json.loads(json.dumps(rows)))
    assert len(rows) <= MAX_ROWS
    for name, share, seconds, entries in rows:
        assert 0 < len(name) <= MAX_NAME_CHARS
        assert not UNNAMEABLE.search(name)
        assert 0 <= share <= 1
        assert seconds >= 0
        assert entries >= 0
    shares = [row[1] for row in rows if row[0] != REST]
    assert shares == sorted(shares, reverse=True)
    return {row[0]: row for row in rows}


def test_kernels_copies_and_gaps_have_a_row_each() -> None:
    rows = valid(
        rows_of_activities(
            [
                Activity("scale", 1_000, 3_000),
                Activity("add", 3_500, 4_500),
                Activity("Memcpy DtoD (Device -> Device)", 4_500, 5_000),
                Activity("scale", 6_000, 8_000),
                Activity("add", 8_000, 9_000),
                Activity("Memcpy DtoD (Device -> Device)", 9_000, 9_500),
            ],
            calls=2,
        )
    )
    assert rows["scale"] == ("scale", 4_000 / 8_500, pytest.approx(2e-6), 1.0)
    assert rows["add"][2] == pytest.approx(1e-6)
    assert rows["Memcpy DtoD (Device -> Device)"][3] == 1.0
    assert rows[GAPS] == (GAPS, pytest.approx(1_500 / 8_500), pytest.approx(0.75e-6), 0.0)
    assert sum(row[1] for row in rows.values()) == pytest.approx(1)


def test_kernels_that_overlap_count_in_full_and_leave_no_gap() -> None:
    rows = valid(rows_of_activities([Activity("a", 0, 100), Activity("b", 0, 100)], calls=1))
    assert rows["a"][1] == rows["b"][1] == 1.0
    assert GAPS not in rows


def test_two_launches_of_one_kernel_in_a_call_are_entered_twice() -> None:
    activities = [Activity("pass", 10 * i, 10 * i + 5) for i in range(8)]
    assert valid(rows_of_activities(activities, calls=4))["pass"][3] == 2.0


def test_a_long_name_keeps_both_its_ends() -> None:
    first, second = (
        Activity("void gemm<" + "int, " * 100 + f"{i}>()", 100 * i, 100 * i + 50) for i in (1, 2)
    )
    rows = valid(rows_of_activities([first, second], calls=1))
    assert len([name for name in rows if name.startswith("void gemm<int")]) == 2


@given(
    st.lists(st.builds(Activity, NAMES, TIMES, TIMES), min_size=1, max_size=80),
    st.integers(1, 1000),
)
def test_whatever_was_recorded_makes_rows_that_the_judge_takes(
    activities: list[Activity], calls: int
) -> None:
    rows = valid(rows_of_activities(activities, calls))
    names = {_shown(activity.name) for activity in activities}
    assert len(names) >= MAX_ROWS or names <= rows.keys(), "a small share is told, too"


@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(10**4, 10**6)), min_size=1, max_size=30))
def test_what_runs_one_after_the_other_adds_up_to_the_whole(steps: list[tuple[int, int]]) -> None:
    activities, now = [], 5
    for wait, length in steps:
        activities.append(Activity("k", now, now + length))
        now += length + wait
    span = activities[-1].end - activities[0].start
    rows = {row[0]: row for row in rows_of_activities(activities, calls=1)}
    gaps = rows.get(GAPS, (GAPS, 0.0, 0.0, 0.0))
    assert rows["k"][1] + gaps[1] == pytest.approx(1, abs=MIN_SHARE)
    assert rows["k"][2] == pytest.approx(sum(length for _, length in steps) / 1e9)
    assert rows["k"][2] <= span / 1e9


@given(st.lists(st.builds(KernelTime, NAMES, TIMES, st.integers(1, 10**6)), min_size=1, max_size=80), TIMES)
def test_sums_make_rows_that_the_judge_takes(usages: list[KernelTime], nanoseconds: int) -> None:
    valid(rows_of_kernel_times(usages, nanoseconds, calls=3))


def test_a_kernel_without_a_name_has_one() -> None:
    assert NAMELESS in valid(rows_of_activities([Activity("", 0, 1)], calls=1))


def test_only_the_devices_work_counts_among_old_events() -> None:
    events = [
        Event("add", 10, 20),
        Event("cudaLaunchKernel", 0, 5, "CPU"),
        Event("my range", 0, 90, _annotation=True),
        Event("Context Sync", 20, 90),
        Event("Memset (Device)", 30, 40),
    ]
    assert list(activities_of(events)) == [Activity("add", 10, 20), Activity("Memset (Device)", 30, 40)]


def test_only_the_devices_work_counts_among_new_events() -> None:
    events = [
        NewEvent("add", 10, 20),
        NewEvent("aten::add", 0, 5, "CPU", _kind="cpu_op"),
        NewEvent("my range", 0, 90, _kind="gpu_user_annotation"),
        NewEvent("Stream Sync", 20, 90, _kind="cuda_sync"),
        NewEvent("Memcpy DtoD (Device -> Device)", 30, 40, _kind="gpu_memcpy"),
    ]
    assert [activity.name for activity in activities_of(events)] == ["add", "Memcpy DtoD (Device -> Device)"]


def test_torchs_own_events_are_of_the_form_expected() -> None:
    """On the CPU torch's profiler runs everywhere: none of its events is the device's."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        torch.ones(3).add(1)
    assert seen.profiler is not None
    assert seen.profiler.kineto_results is not None
    events = seen.profiler.kineto_results.events()
    assert any(event.name() == "aten::add" and event.end_ns() >= event.start_ns() for event in events)
    assert list(activities_of(events)) == []


def test_kernels_are_found_in_protons_tree() -> None:
    def node(name: str, nanoseconds: int, count: int, *children: Any) -> dict[str, Any]:
        metrics = {"count": count, "time (ns)": nanoseconds, "device_id": "0", "device_type": "CUDA"}
        return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}

    tree = node(
        "ROOT", 0, 0, node("scale", 4_000, 2), {"frame": {"name": "s"}, "children": [node("add", 10, 1)]}
    )
    usages = list(kernel_times(tree))
    assert usages == [KernelTime("scale", 4_000, 2), KernelTime("add", 10, 1)]
    rows = valid(rows_of_kernel_times(usages, 8_000, calls=2))
    assert rows["scale"][1] == 0.5
    assert rows[GAPS][1] == pytest.approx(0.49875)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to trace")
def test_without_a_device_nothing_is_traced_and_nothing_called() -> None:
    called: list[int] = []
    with pytest.raises(NothingTraced, match="Proton"):
        measure(lambda: called.append(1) or 1, 1)
    assert called == []
