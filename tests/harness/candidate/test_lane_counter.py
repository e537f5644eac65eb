"""Masked lanes and loop trips as the interpreter's counts tell them, against a reckoning of their own for each kernel.

The kernels stand in lane_kernels.py, and run in one process that interprets them.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.candidate.lane_counter import LoopInstrumenter
from hillclimb.harness.candidate.lane_tally import AccessCount, KernelCount, LaneTally
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.profile_limits import MAX_ACCESSES, MAX_LOOPS, MAX_NAME_CHARS

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
KERNELS = Path(__file__).with_name("lane_kernels.py")
SOURCE = KERNELS.read_text().splitlines()
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}

Numbers = tuple[int, ...]
A_FEW = settings(max_examples=20)


@dataclass(frozen=True)
class Counted:
    """What was told of one run, by the marks at the ends of the lines."""

    launches: dict[str, tuple[int, int]]
    """Kernel -> launches, programs."""
    accesses: dict[tuple[str, str], Numbers]
    """(kernel/mark, kind) -> runs, lanes, masked off, useful bytes."""
    loops: dict[str, Numbers]
    """kernel/mark -> entries, trips, fewest, most."""


class Interpreting:
    """The process that runs the kernels."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.candidate.lane_kernels"],
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate(timeout=20)

    def ask(self, kernel: str, **sizes: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"kernel": kernel, **sizes}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the kernel failed; its error is among what was printed"
        return dict(json.loads(line))

    def count(self, kernel: str, **sizes: Any) -> Counted:
        """Counted, of a result that is right and stays the same, with everything put back afterwards."""
        answer = self.ask(kernel, **sizes)
        assert max(answer["wrong"]) < 1e-2
        assert len(set(answer["wrong"])) == 1
        assert answer["restored"]
        told = answer["told"]
        assert told["files"] == [KERNELS.name]
        assert told["left_out"] == 0
        return Counted(
            {name: (launches, programs) for name, _, _, launches, programs in told["kernels"]},
            {(mark(told, row), row[3]): tuple(row[4:]) for row in told["accesses"]},
            {mark(told, row): tuple(row[3:]) for row in told["loops"]},
        )


def mark(told: dict[str, Any], row: list[Any]) -> str:
    """The kernel's name and the mark of the line."""
    return f"{told['kernels'][row[0]][0]}/{SOURCE[row[2] - 1].split('# ')[1]}"


@pytest.fixture(scope="module")
def interpreting() -> Iterator[Interpreting]:
    process = Interpreting()
    yield process
    process.close()


def entered(trips: Iterable[int]) -> Numbers:
    """Entries, trips, fewest and most of a loop that ran so often each time."""
    every = list(trips)
    return len(every), sum(every), min(every), max(every)


def accessed(masks: Iterable[np.ndarray], item_bytes: int) -> Numbers:
    """Runs, lanes, lanes masked off and useful bytes of accesses with these masks."""
    every = list(masks)
    lanes, live = sum(mask.size for mask in every), sum(int(mask.sum()) for mask in every)
    return len(every), lanes, lanes - live, live * item_bytes


@pytest.mark.slow(6)
@A_FEW
@given(
    rows=st.integers(1, 3),
    columns=st.integers(1, 50),
    block=st.sampled_from([4, 16, 64]),
    dtype=st.sampled_from(list(ITEM_BYTES)),
    times=st.integers(1, 2),
)
def test_a_softmax_with_a_masked_tail(
    interpreting: Interpreting, rows: int, columns: int, block: int, dtype: str, times: int
) -> None:
    found = interpreting.count("softmax", rows=rows, columns=columns, block=block, dtype=dtype, times=times)
    starts = np.arange(0, columns, block)
    masks = [start + np.arange(block) < columns for start in starts] * rows * times
    access, loop = accessed(masks, ITEM_BYTES[dtype]), entered([len(starts)] * rows * times)
    assert found.launches == {"softmax_kernel": (times, rows * times)}
    assert found.accesses == {
        ("softmax_kernel/softmax.first", "load"): access,
        ("softmax_kernel/softmax.second", "load"): access,
        ("softmax_kernel/softmax.third", "load"): access,
        ("softmax_kernel/softmax.store", "store"): access,
    }
    assert found.loops == {f"softmax_kernel/softmax.{name}": loop for name in ("maximum", "sum", "quotient")}


@pytest.mark.slow(10)
@A_FEW
@given(
    tokens=st.integers(1, 3),
    heads=st.integers(1, 20),
    depth=st.integers(1, 130),
    dtype=st.sampled_from(list(ITEM_BYTES)),
)
def test_a_padded_tile(interpreting: Interpreting, tokens: int, heads: int, depth: int, dtype: str) -> None:
    found = interpreting.count("padded", tokens=tokens, heads=heads, depth=depth, dtype=dtype)
    power = [1 << (size - 1).bit_length() for size in (heads, depth)]
    mask = (np.arange(power[0]) < heads)[:, None] & (np.arange(power[1]) < depth)
    access = accessed([mask] * tokens, ITEM_BYTES[dtype])
    assert found.accesses == {
        ("padded_kernel/padded.load", "load"): access,
        ("padded_kernel/padded.store", "store"): access,
    }
    assert found.loops == {}


@pytest.mark.slow(3)
def test_12_heads_of_96_in_powers_of_two_mask_43_75_percent(interpreting: Interpreting) -> None:
    """The tile of the quantize-KV case."""
    found = interpreting.count("padded", tokens=4, heads=12, depth=96, dtype="float16")
    for runs, lanes, masked, useful in found.accesses.values():
        assert (runs, lanes, masked) == (4, 4 * 16 * 128, 4 * (16 * 128 - 12 * 96))
        assert masked / lanes == 0.4375
        assert useful == 4 * 12 * 96 * 2


@pytest.mark.slow(3)
@A_FEW
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    step=st.sampled_from([4, 16]),
    programs=st.integers(1, 7),
)
def test_nested_loops_with_and_without_trips_in_a_function_of_two_kernels(
    interpreting: Interpreting, lengths: list[int], step: int, programs: int
) -> None:
    found = interpreting.count("nested", lengths=lengths, step=step, programs=programs)
    rows = len(lengths)
    inner = [-(-length // step) for length in lengths]
    masks = [[s + np.arange(step) < length for s in range(0, length, step)] for length in lengths]
    assert found.launches == {"nested_kernel": (1, programs), "other_kernel": (1, 1)}
    assert found.loops == {
        "nested_kernel/nested.outer": entered(
            len(range(program, rows, programs)) for program in range(programs)
        ),
        "nested_kernel/nested.inner": entered(inner),
        "other_kernel/nested.inner": entered(inner[:1]),
    }
    loads = {
        ("nested_kernel/nested.load", "load"): accessed([mask for row in masks for mask in row], 4),
        ("other_kernel/nested.load", "load"): accessed(masks[0], 4),
    }
    one = np.array([True])
    assert found.accesses == {
        **{where: access for where, access in loads.items() if access[0]},
        ("nested_kernel/nested.length", "load"): accessed([one] * rows, 4),
        ("nested_kernel/nested.store", "store"): accessed([one] * rows, 4),
        ("other_kernel/other.length", "load"): accessed([one], 4),
        ("other_kernel/other.store", "store"): accessed([one], 4),
    }


@pytest.mark.slow(3)
@A_FEW
@given(limits=st.lists(st.integers(0, 12), min_size=1, max_size=5), most=st.integers(0, 10))
def test_loops_that_are_left_early(interpreting: Interpreting, limits: list[int], most: int) -> None:
    found = interpreting.count("leaving", limits=limits, most=most)
    staying = [limit for limit in limits if limit < most]
    loops = {"leaving.break": entered(min(limit + 1, most) for limit in limits)}
    stores = {"leaving.else": len(limits) - len(staying), "leaving.store": len(staying)}
    if staying:
        loops["leaving.static"] = entered([1] * len(staying))
        loops["leaving.return"] = entered(limit + 1 for limit in staying)
    assert found.loops == {f"leaving_kernel/{name}": loop for name, loop in loops.items()}
    assert found.accesses == {
        ("leaving_kernel/leaving.limit", "load"): (len(limits), len(limits), 0, 4 * len(limits)),
        **{
            (f"leaving_kernel/{name}", "store"): (runs, runs, 0, 4 * runs)
            for name, runs in stores.items()
            if runs
        },
    }


@pytest.mark.slow(3)
@A_FEW
@given(size=st.integers(1, 70), block=st.sampled_from([4, 16, 64]))
def test_atomics(interpreting: Interpreting, size: int, block: int) -> None:
    """A maximum of floats is made of two by the language, of numbers above zero and below: one access all the same."""
    found = interpreting.count("atomics", size=size, block=block)
    starts = np.arange(0, size, block)
    access = accessed([start + np.arange(block) < size for start in starts], 4)
    assert found.accesses == {
        ("atomics_kernel/atomics.load", "load"): access,
        ("atomics_kernel/atomics.add", "atomic"): access,
        ("atomics_kernel/atomics.max", "atomic"): access,
        ("atomics_kernel/atomics.cas", "atomic"): accessed([np.array([True])] * len(starts), 4),
    }


@pytest.mark.slow(3)
@A_FEW
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 5).map(lambda n: 8 * n),
    block=st.sampled_from([8, 16, 32]),
)
def test_what_is_outside_a_descriptors_bounds_is_masked_off(
    interpreting: Interpreting, rows: int, columns: int, block: int
) -> None:
    found = interpreting.count("descriptor", rows=rows, columns=columns, block=block)
    lane = np.arange(block)
    access = accessed(
        [
            ((row + lane) < rows)[:, None] & ((column + lane) < columns)
            for row in range(0, rows, block)
            for column in range(0, columns, block)
        ],
        2,
    )
    where = "descriptor_kernel/descriptor.both"
    assert found.accesses == {(where, "load"): access, (where, "store"): access}


@pytest.mark.slow(3)
@A_FEW
@given(numbers=st.lists(st.integers(0, 30), min_size=8, max_size=8), rows=st.integers(1, 30))
def test_rows_that_are_gathered_and_scattered(
    interpreting: Interpreting, numbers: list[int], rows: int
) -> None:
    found = interpreting.count("gather", numbers=numbers, rows=rows, columns=12, width=16)
    mask = (np.array(numbers) < rows)[:, None] & (np.arange(16) < 12)
    assert found.accesses["gather_kernel/gather.gather", "load"] == accessed([mask], 4)
    assert found.accesses["gather_kernel/gather.scatter", "store"] == accessed([mask], 4)


def test_block_pointers_where_triton_has_them(interpreting: Interpreting) -> None:
    import triton

    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
        pytest.skip("this Triton has descriptors only")
    found = interpreting.count("block_pointer", rows=13, columns=24, block=8)
    masks = [((start + np.arange(8)) < 13)[:, None] & np.ones(8, bool) for start in (0, 8)] * 3
    assert found.accesses == {
        ("block_pointer_kernel/block.load", "load"): accessed(masks, 2),
        ("block_pointer_kernel/block.store", "store"): accessed(masks, 2),
    }
    assert found.loops == {"block_pointer_kernel/block.loop": entered([3, 3])}


@pytest.mark.slow(2)
def test_kernels_of_another_folder_are_counted_without_lines(interpreting: Interpreting) -> None:
    sizes = {"rows": 2, "columns": 5, "block": 8, "dtype": "float32"}
    told = interpreting.ask("softmax", workspace="/nowhere", **sizes)["told"]
    assert told["files"] == ["elsewhere"]
    assert told["accesses"] == [[0, 0, 0, "load", 6, 48, 18, 120], [0, 0, 0, "store", 2, 16, 6, 40]]
    assert told["loops"] == []


PLAIN = """
def walk(lists, log):
    for inner in lists:
        n = 0
        for item in inner:
            if item == 0:
                break
            if item == 1:
                continue
            if item == 2:
                return "left"
            if item == 3:
                raise ValueError
        else:
            log.append("whole")
        while n < len(inner):
            n += 2
        else:
            log.append(n)
    return "done"
"""
LOOPS = [n for n, text in enumerate(PLAIN.splitlines(), 1) if text.split()[:1] in (["for"], ["while"])]


def walk(tree: ast.AST, lists: list[list[int]], **names: Any) -> tuple[str, list[Any]]:
    """How it ended, and what it did."""
    log: list[Any] = []
    exec(compile(tree, "plain.py", "exec"), names)  # type: ignore[arg-type]
    try:
        return names["walk"](lists, log), log
    except ValueError:
        return "raised", log


@given(st.lists(st.lists(st.integers(0, 7), max_size=5), max_size=4))
def test_counted_loops_do_what_they_did(lists: list[list[int]]) -> None:
    """And their trips are those that a trace of the lines sees."""
    tally, plain = LaneTally("/workspace"), ast.parse(PLAIN)
    counted = LoopInstrumenter("plain.py").visit(ast.parse(PLAIN))
    with tally.launch(compile("", "/workspace/plain.py", "exec")):
        assert walk(counted, lists, __hillclimb_loop__=tally.enter) == walk(plain, lists)
    assert {line: loop.trips for (_, _, line), loop in tally.loops.items()} == traced(plain, lists)


def traced(tree: ast.AST, lists: list[list[int]]) -> dict[int, int]:
    """Line of each loop that was reached -> times that its body's first line ran, which is the next one."""
    lines: Counter[int] = Counter()

    def note(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != "plain.py":
            return None
        if event == "line":
            lines[frame.f_lineno] += 1
        return note

    outer = sys.gettrace()
    sys.settrace(note)
    try:
        walk(tree, lists)
    finally:
        sys.settrace(outer)
    return {line: lines[line + 1] for line in LOOPS if lines[line]}


def crowd(accesses: int, loops: int) -> LaneTally:
    """So many lines with long names and large numbers; later ones are larger."""
    tally = LaneTally("/workspace")
    with tally.launch(compile("", f"/workspace/{'f' * 300}.py", "exec")):
        for line in range(accesses):
            place = (0, f"{line % 20}{'g' * 300}.py", line)
            tally.accesses[place, "atomic"] = AccessCount(10**15, 10**15 + line, 1, 10**15)
        for line in range(loops):
            with tally.enter("loops.py", line) as entry:
                entry.trips = 10**15 + line
    return tally


@pytest.mark.slow(2)
def test_the_largest_rows_are_told_and_the_rest_is_counted() -> None:
    told = crowd(2 * MAX_ACCESSES, 2 * MAX_LOOPS).to_json()
    assert [row[2] for row in told["loops"]] == list(range(MAX_LOOPS, 2 * MAX_LOOPS))
    assert sorted(row[2] for row in told["accesses"]) == list(range(MAX_ACCESSES, 2 * MAX_ACCESSES))
    assert told["left_out"] == MAX_ACCESSES + MAX_LOOPS
    assert max(map(len, told["files"])) == MAX_NAME_CHARS
    assert len(json.dumps({"ok": True, "lanes": told})) < wire.MAX_BYTES


def test_names_that_could_not_be_shown_are_told_with_question_marks() -> None:
    tally = LaneTally("/workspace")
    tally.kernels.append(KernelCount("größe\n", "a`b.py", 1))
    assert tally.to_json()["kernels"][0][0] == "gr??e?"
    assert tally.to_json()["files"] == ["a?b.py"]
