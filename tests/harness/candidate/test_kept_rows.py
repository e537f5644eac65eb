"""Functions that are asked for have a row, by a name that the judge can tell beforehand."""

from __future__ import annotations

import threading
from pathlib import Path
from types import CodeType

import pytest

from hillclimb.harness.candidate.profiler import Profiler, ProfileRow, largest
from hillclimb.harness.channel.profile_limits import MAX_KEPT, MAX_NAME_CHARS, MAX_ROWS, REST
from hillclimb.harness.channel.row_names import WORKERS, library_name, row_name

PLACES = ["ops/plain.py", "ops/kérnel.py", f"{'d' * 90}/{'e' * 90}.py", f"{'d' * 200}.py", "a b/c;d.py"]


def function_in(workspace: Path, place: str, name: str) -> CodeType:
    """The code of a function that such a file would define."""
    source = f"def {name}():\n    pass\n"
    scope: dict[str, object] = {}
    exec(compile(source, str(workspace / place), "exec"), scope)
    function = scope[name]
    assert callable(function)
    return function.__code__


@pytest.mark.parametrize("name", ["copy_plain", "n" * 100])
@pytest.mark.parametrize("place", PLACES)
def test_the_judge_knows_the_row_of_a_file_and_a_name(tmp_path: Path, place: str, name: str) -> None:
    profiler = Profiler(str(tmp_path))
    profiler.adopt_threads()
    code = function_in(tmp_path, place, name)

    def call() -> None:
        for _ in range(3):
            exec(code)

    def work() -> int:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return 10**12

    try:
        rows = profiler.measure(work, 1, frozenset({name}))
    finally:
        threading.setprofile(None)
    assert rows[0][0] == row_name(place, name) + WORKERS and rows[0][3] == 3
    assert len(rows[0][0]) <= MAX_NAME_CHARS


def test_names_that_differ_in_the_end_stay_apart() -> None:
    names = {row_name(f"{'d' * 200}/{place}.py", "f") for place in "abc"}
    assert len(names) == 3


def test_a_library_is_called_by_the_whole_path_of_its_source() -> None:
    assert library_name(Path("ops/c/norm.c")) == "ops_c_norm_c.so"
    assert library_name(Path("ops/c/norm.cpp")) != library_name(Path("ops/c/norm.c"))


def rows_of(count: int, share: float, name: str) -> list[ProfileRow]:
    return [(f"{name}{i}", share, 1.0, 1.0) for i in range(count)]


def test_what_is_asked_for_does_not_displace_the_largest() -> None:
    others = rows_of(50, 0.015, "other")
    kept = rows_of(MAX_KEPT + 20, 0.0, "kept")
    shown = largest([*others, *kept], frozenset(row[0] for row in kept))
    assert sum(row[0].startswith("kept") for row in shown) == MAX_KEPT
    assert sum(row[0].startswith("other") for row in shown) == MAX_ROWS - 2 + 1
    assert shown[-1][0] == REST and shown[-1][1] == pytest.approx(12 * 0.015)


def test_without_anything_asked_for_the_largest_are_shown() -> None:
    shown = largest([*rows_of(3, 0.2, "large"), *rows_of(3, 0.001, "small")])
    assert [row[0] for row in shown] == ["large0", "large1", "large2"]
