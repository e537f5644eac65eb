"""Two sides of a duel sit on one core, the judge on another, and nobody's place outlasts the duel but the sides'."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.device.affinity import MIN_CORES, cores_of_judge, list_cores, pinned, unpinned


def write_siblings(folder: Path, told: dict[int, str]) -> Path:
    for cpu, text in told.items():
        (folder / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(text + "\n")
    return folder


@pytest.mark.parametrize(
    ("told", "cpus", "cores"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, {0, 1, 2, 3}, [(0, 1), (2, 3)]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, {0, 1, 2, 3}, [(0, 2), (1, 3)]),
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, {1, 2, 3}, [(1,), (2, 3)]),
        ({0: "gibberish"}, {0, 5}, [(0,), (5,)]),
    ],
)
def test_cores_are_told_by_the_system_or_else_every_cpu_is_one(
    tmp_path: Path, told: dict[int, str], cpus: set[int], cores: list[tuple[int, ...]]
) -> None:
    assert list_cores(cpus, write_siblings(tmp_path, told)) == cores


def test_this_machines_cores_are_its_cpus_each_once() -> None:
    cpus = os.sched_getaffinity(0)
    assert sorted(cpu for core in list_cores(cpus) for cpu in core) == sorted(cpus)


@given(cores=st.integers(0, 70), count=st.integers(1, 8))
def test_judges_of_several_gpus_share_no_core(cores: int, count: int) -> None:
    shares = [cores_of_judge([(n,) for n in range(cores)], index, count) for index in range(count)]
    taken = [core for mine in shares for core in mine]
    assert len(taken) == len(set(taken))
    assert all(len(mine) == 0 or len(mine) >= MIN_CORES for mine in shares)


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def test_the_sides_sit_together_and_the_judge_elsewhere(sleeper: int) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two CPUs")
    cores = [(cpu,) for cpu in sorted(before)]
    with pinned(cores, [sleeper]):
        ours, theirs = os.sched_getaffinity(0), os.sched_getaffinity(sleeper)
        assert (len(ours), len(theirs)) == (1, 1)
        assert ours.isdisjoint(theirs)
        with pinned(cores, [sleeper]):
            assert (os.sched_getaffinity(0), os.sched_getaffinity(sleeper)) == (ours, theirs)
        assert os.sched_getaffinity(0) == ours
    assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(sleeper) == theirs


def test_the_sides_leave_their_seat_while_both_have_work(sleeper: int) -> None:
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    cores = [(cpu,) for cpu in sorted(cpus)]
    with pinned(cores, [sleeper]):
        seat = os.sched_getaffinity(sleeper)
        with unpinned(cores, [sleeper, 2**22 - 1]):
            assert os.sched_getaffinity(sleeper) == cpus
        assert os.sched_getaffinity(sleeper) == seat
    with unpinned([], [sleeper]):
        assert os.sched_getaffinity(sleeper) == seat


def test_without_cores_nobody_is_moved_and_what_is_not_there_hinders_nobody(sleeper: int) -> None:
    before = os.sched_getaffinity(0), os.sched_getaffinity(sleeper)
    with pinned([], [sleeper]):
        assert (os.sched_getaffinity(0), os.sched_getaffinity(sleeper)) == before
    with pinned([(0,), (1000,)], [2**22 - 1]):
        pass
    assert os.sched_getaffinity(0) == before[0]
