"""Device time of every GPU kernel launched, as CUPTI's activity records tell it; runs in the candidate's process.

Through torch's profiler, and through Triton's (Proton) where that one sees nothing: each brings a CUPTI of its own.
Tracing activities takes no right to the hardware counters, no socket and no process.

Covered: kernels, copies and fills, launched one by one or by a graph, on every stream. Not covered: what happens inside
one kernel (harness.profile.counters), host time, and under Proton copies and fills. Tracing lengthens launches, so gaps
between short kernels read too long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hillclimb.harness.candidate.profiler import MIN_SHARE, NOTHING_KEPT, ProfileRow, largest
from hillclimb.harness.channel.profile_limits import CUT, MAX_NAME_CHARS, MAX_ROWS, UNNAMEABLE

GAPS = "gaps (nothing runs on the device)"
NAMELESS = "a kernel without a name"

WORK = {"concurrent_kernel", "kernel", "gpu_memcpy", "gpu_memset"}
"""Kinds of record that are work of the device, where torch tells the kind (2.15 does, 2.11 does not)."""

BOOKKEEPING = {"Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event", "Unknown Sync"}
"""Names of records that stand for waiting, where it does not."""


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or fill on the device; nanoseconds of the device's clock."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class KernelTime:
    """All activities of one name."""

    name: str
    nanoseconds: int
    launches: int


class NothingTraced(RuntimeError):
    """No profiler here saw the device do anything."""


def measure(work: Callable[[], int], calls: int, kept: frozenset[str] = NOTHING_KEPT) -> list[ProfileRow]:
    """Rows of `work`, which calls the kernel `calls` times, waits for the device and returns its nanoseconds.

    Kernels with one of `kept` in their names are told however small they are.

    Raises NothingTraced where no profiler saw a kernel, and whatever `work` raises. Where torch's profiler sees
    nothing, `work` is done a second time.
    """
    if activities := trace_with_torch(work):
        return rows_of_activities(activities, calls, kept)
    usages, nanoseconds = trace_with_proton(work)
    if not usages:
        raise NothingTraced("neither torch's profiler nor Proton saw a kernel on the device")
    return rows_of_kernel_times(usages, nanoseconds, calls, kept)


def rows_of_activities(
    activities: Iterable[Activity], calls: int, kept: frozenset[str] = NOTHING_KEPT
) -> list[ProfileRow]:
    """Rows by kernel name, and the gaps; shares are of the time from the first start to the last end.

    Kernels that overlap each count in full, so shares may add up to more than 1.
    """
    known = list(activities)
    span = max(activity.end for activity in known) - min(activity.start for activity in known)
    by_name: dict[str, list[int]] = {}
    for activity in known:
        by_name.setdefault(activity.name, []).append(max(0, activity.end - activity.start))
    usages = [KernelTime(name, sum(times), len(times)) for name, times in by_name.items()]
    return _rows(usages, max(span, 1), span - _busy(known), calls, kept)


def rows_of_kernel_times(
    usages: Iterable[KernelTime], nanoseconds: int, calls: int, kept: frozenset[str] = NOTHING_KEPT
) -> list[ProfileRow]:
    """Rows by kernel name, and what of `nanoseconds` no kernel filled."""
    known = list(usages)
    busy = sum(usage.nanoseconds for usage in known)
    whole = max(nanoseconds, busy, 1)
    return _rows(known, whole, whole - busy, calls, kept)


def trace_with_torch(work: Callable[[], int]) -> list[Activity]:
    """What torch's profiler sees of `work` on the device; nothing where CUPTI cannot be had."""
    from torch.profiler import ProfilerActivity, profile, supported_activities

    if ProfilerActivity.CUDA not in supported_activities():  # type: ignore[no-untyped-call]
        return []
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
    results = seen.profiler.kineto_results if seen.profiler else None
    return list(activities_of(results.events())) if results else []


def activities_of(events: Iterable[Any]) -> Iterator[Activity]:
    """The device's work among kineto's events."""
    for event in events:
        if event.device_type().name == "CUDA" and _is_work(event):
            yield Activity(event.name(), event.start_ns(), event.end_ns())


def trace_with_proton(work: Callable[[], int]) -> tuple[list[KernelTime], int]:
    """What Triton's profiler sees of `work`, and the nanoseconds `work` told.

    Raises NothingTraced where Proton is not there or cannot have CUPTI.
    """
    with TemporaryDirectory() as folder:
        name = Path(folder, "profile")
        try:
            from triton import profiler as proton

            session = proton.start(str(name), context="shadow", data="tree", backend="cupti")
        except (ImportError, RuntimeError, OSError) as error:
            raise NothingTraced(
                f"torch's profiler saw no kernel, and Proton cannot be started: {error}"
            ) from error
        if session is None:
            raise NothingTraced("torch's profiler saw no kernel, and Proton is switched off")
        try:
            nanoseconds = work()
        finally:
            proton.finalize(session, "hatchet")
        tree = json.loads(name.with_suffix(".hatchet").read_text())
    return list(kernel_times(tree[0])), nanoseconds


def kernel_times(node: Mapping[str, Any]) -> Iterator[KernelTime]:
    """Kernels in a tree of Hatchet's form, as Proton writes it."""
    metrics = node.get("metrics", {})
    nanoseconds, launches = metrics.get("time (ns)", 0), metrics.get("count", 0)
    if nanoseconds > 0 and launches > 0:
        yield KernelTime(str(node.get("frame", {}).get("name", "")), round(nanoseconds), round(launches))
    for child in node.get("children", ()):
        yield from kernel_times(child)


def _is_work(event: Any) -> bool:
    if hasattr(event, "activity_type"):
        return event.activity_type() in WORK
    return not event.is_user_annotation() and event.name() not in BOOKKEEPING


def _busy(activities: Iterable[Activity]) -> int:
    """Nanoseconds in which at least one of them ran."""
    busy, until = 0, 0
    for activity in sorted(activities, key=lambda a: a.start):
        busy += max(0, activity.end - max(activity.start, until))
        until = max(until, activity.end)
    return busy


def _rows(
    usages: Iterable[KernelTime], whole: int, idle: int, calls: int, kept: frozenset[str]
) -> list[ProfileRow]:
    by_name: dict[str, tuple[int, int]] = {}
    for usage in usages:
        name = _shown(usage.name)
        nanoseconds, launches = by_name.get(name, (0, 0))
        by_name[name] = nanoseconds + usage.nanoseconds, launches + usage.launches
    rows = [
        (name, min(1.0, nanoseconds / whole), nanoseconds / calls / 1e9, launches / calls)
        for name, (nanoseconds, launches) in by_name.items()
    ]
    gaps = max(0, idle)
    if gaps >= MIN_SHARE * whole:
        rows.append((GAPS, min(1.0, gaps / whole), gaps / calls / 1e9, 0.0))
    if len(rows) > MAX_ROWS:
        return largest(rows, frozenset(row[0] for row in rows if any(name in row[0] for name in kept)))
    return sorted(rows, key=lambda row: -row[1])  # however small: the judge looks at every name


def _shown(name: str) -> str:
    """A name as it may be shown. Of a long one both ends stay, for instances of one template differ at the end."""
    name = UNNAMEABLE.sub("?", name) or NAMELESS
    if len(name) <= MAX_NAME_CHARS:
        return name
    half = (MAX_NAME_CHARS - len(CUT)) // 2
    return f"{name[:half]}{CUT}{name[-half:]}"
