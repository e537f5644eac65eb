"""Own times by function and thread, as the runner's profiler tells them of code in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hillclimb.harness.candidate.profiler import (
    MIN_SHARE,
    REST,
    WAITING,
    WORKERS,
    Profiler,
    ProfileRow,
    largest,
)
from hillclimb.harness.channel.profile_limits import MAX_NAME_CHARS, MAX_ROWS, UNNAMEABLE

HERE = Path(__file__)


@pytest.fixture
def profiler() -> Iterator[Profiler]:
    """Of this folder; leaves no profile function behind."""
    before = sys.getprofile()
    yield Profiler(str(HERE.parent))
    threading.setprofile(None)
    sys.setprofile(before)


def timed(work: Callable[[], object], calls: int = 1) -> Callable[[], int]:
    def run() -> int:
        start = time.perf_counter_ns()
        for _ in range(calls):
            work()
        return time.perf_counter_ns() - start

    return run


def by_name(rows: list[ProfileRow]) -> dict[str, ProfileRow]:
    assert len(rows) <= MAX_ROWS
    assert all(0 <= share <= 1 and seconds >= 0 and entries >= 0 for _, share, seconds, entries in rows)
    return {row[0]: row for row in rows}


def doze(seconds: float) -> None:
    time.sleep(seconds)


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_own_time_leaves_out_what_is_called(profiler: Profiler) -> None:
    def outer() -> None:
        doze(0.01)
        doze(0.01)
        spin(0.01)

    rows = by_name(profiler.measure(timed(outer, 3), 3))
    _, share, seconds, entries = rows["time.sleep"]
    assert seconds >= 0.02
    assert entries == 2
    assert f"{HERE.name}:doze" not in rows or rows[f"{HERE.name}:doze"][1] < share
    assert sum(row[1] for row in rows.values()) <= 1.001, "nothing counts twice"
    assert rows[f"{HERE.name}:spin"][3] == 1
    assert sys.getprofile() is None


def in_a_process_of_its_own(scene: str) -> dict[str, ProfileRow]:
    """Rows of a scene of tests.harness.candidate.threads: here, other tests may have left threads behind."""
    command = [sys.executable, "-m", "tests.harness.candidate.threads", scene]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE.parents[3])
    rows: list[ProfileRow] = [(str(name), *figures) for name, *figures in json.loads(done.stdout)]
    return by_name(rows)


def test_a_worker_thread_is_adopted_and_its_idle_time_is_no_longer_than_the_work() -> None:
    rows = in_a_process_of_its_own("worker")
    assert rows[WAITING][2] >= 0.003
    assert rows["time.sleep"][2] >= 0.004
    assert rows["time.sleep" + WORKERS][2] >= 0.004
    assert rows["time.sleep" + WORKERS][3] == 1
    assert 0 < rows[WAITING + WORKERS][1] < 1
    assert sum(row[1] for row in rows.values() if row[0].endswith(WORKERS)) == pytest.approx(1, abs=0.01)


def test_threads_that_live_for_one_call_count_as_those_alive_at_a_time() -> None:
    rows = in_a_process_of_its_own("short-lived")
    assert rows["time.sleep" + WORKERS][3] == 2
    assert rows["time.sleep" + WORKERS][2] > 0.008, "two at a time, not eight"


def test_a_thread_costs_nothing_it_shows_before_the_recording(profiler: Profiler) -> None:
    profiler.adopt_threads()
    thread = threading.Thread(target=doze, args=(0.01,))
    thread.start()
    thread.join()
    rows = profiler.measure(timed(lambda: spin(0.005)), 1)
    assert not [row for row in rows if row[0].endswith(WORKERS)]


def test_an_exception_passes_and_the_profiler_is_off(profiler: Profiler) -> None:
    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        profiler.measure(fail, 1)
    assert sys.getprofile() is None
    assert f"{HERE.name}:spin" in by_name(profiler.measure(timed(lambda: spin(0.01)), 1))


def test_the_smallest_are_added_up_by_kind_of_thread() -> None:
    large = [(f"f{i}", 0.01 + i / 1e4, 1e-3, 1.0) for i in range(50)]
    small = [(f"g{i}{WORKERS}", 0.002, 1e-4, 3.0) for i in range(10)]
    rows = largest([*small, *large, ("h", 0.0001, 0.0, 1.0)])
    assert [row[0] for row in rows[:2]] == ["f49", "f48"]
    assert len(rows) == MAX_ROWS
    assert rows[-2] == (REST, pytest.approx(sum(r[1] for r in large[:12]) + 0.0001), pytest.approx(0.012), 13)
    assert rows[-1] == (REST + WORKERS, pytest.approx(0.02), pytest.approx(1e-3), 30)
    assert largest([("h", MIN_SHARE / 2, 0.0, 1.0)]) == []


def test_names_are_of_plain_letters_and_bounded(profiler: Profiler) -> None:
    def strange() -> None:
        spin(0.002)

    strange.__code__ = strange.__code__.replace(co_name="größe\x1b[2J\n" + "x" * 500)
    rows = profiler.measure(timed(strange), 1)
    assert all(0 < len(name) <= MAX_NAME_CHARS and not UNNAMEABLE.search(name) for name, *_ in rows)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (str(HERE.parent / "sub" / "tile.py"), "sub/tile.py"),
        (threading.__file__, "threading.py"),
        (pytest.__file__, "pytest/__init__.py"),
        ("<string>", "<string>"),
        ("/nowhere/at/all.py", "all.py"),
    ],
)
def test_files_are_named_as_they_are_imported(profiler: Profiler, file: str, shown: str) -> None:
    code = compile("def f(): pass\nf()", file, "exec")
    assert profiler._name(id(code), code) == f"{shown}:<module>"


def test_a_wait_is_called_one(profiler: Profiler) -> None:
    assert profiler._name((None, "lock.acquire"), "_thread") == WAITING
    assert profiler._name((None, "ndarray.sum"), "numpy") == "numpy.ndarray.sum"
    assert profiler._name(("math", "sqrt"), SimpleNamespace()) == "math.sqrt"
