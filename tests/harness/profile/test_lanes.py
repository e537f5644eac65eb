"""Lane counts at the judge: exact through a real sandbox, of one form only, and a sentence for whatever else comes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.case import Case
from hillclimb.harness.channel.profile_limits import MAX_ACCESSES, MAX_LOOPS, MAX_NAME_CHARS
from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.profile.lanes import MAX_COUNT, MAX_SOURCE_CHARS, Statements, chosen, parse_lanes
from hillclimb.harness.records import LaneCount, Lanes, Progress, Reason, Side, TripCount
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.cases.workspace import CASES
from tests.fakes.cases import write_case

SOFTMAX = CASES / "demo" / "triton_softmax"
PASSES = {"SX_ALGORITHM": "passes", "SX_BLOCK": "256", "SX_ROWS": "2", "SX_WAVES": "0", "SX_LANES": "0"}

ACCESS = [0, 0, 7, "load", 3, 48, 5, 86]
LOOP = [0, 0, 6, 2, 5, 2, 3]
TOLD: dict[str, Any] = {
    "files": ["kernel.py"],
    "kernels": [["double", 0, 5, 1, 3]],
    "accesses": [ACCESS],
    "loops": [LOOP],
    "left_out": 0,
}


def told(**changes: Any) -> dict[str, Any]:
    return {**TOLD, **changes}


FORGED: dict[str, Any] = {
    "nothing": None,
    "a list": [TOLD],
    "a part missing": {name: TOLD[name] for name in ("files", "kernels", "accesses", "left_out")},
    "a part too many": told(verdict="kept"),
    "a file without a name": told(files=[""]),
    "a file that clears the screen": told(files=["\x1b[2J"]),
    "a file of two lines": told(files=["a\nb"]),
    "a file with markup": told(files=["`kernel.py`"]),
    "a file without end": told(files=["f" * (MAX_NAME_CHARS + 1)]),
    "more files than there may be": told(files=["f"] * 33),
    "a kernel that is no row": told(kernels=["double"]),
    "a kernel too short": told(kernels=[["double", 0, 5, 1]]),
    "a kernel of another file": told(kernels=[["double", 1, 5, 1, 3]]),
    "a kernel of the file before the first": told(kernels=[["double", -1, 5, 1, 3]]),
    "a kernel that is half a character": told(kernels=[["\ud800", 0, 5, 1, 3]]),
    "an access too long": told(accesses=[[*ACCESS, 1]]),
    "an access of another kernel": told(accesses=[[1, *ACCESS[1:]]]),
    "an access of another kind": told(accesses=[[*ACCESS[:3], "prefetch", *ACCESS[4:]]]),
    "an access of a kind that cannot be looked up": told(accesses=[[*ACCESS[:3], [], *ACCESS[4:]]]),
    "more masked than there are": told(accesses=[[*ACCESS[:6], 49, 86]]),
    "fewer than none": told(accesses=[[*ACCESS[:4], -3, 48, 5, 86]]),
    "half a lane": told(accesses=[[*ACCESS[:5], 48.5, 5, 86]]),
    "a truth for a number": told(accesses=[[*ACCESS[:4], True, 48, 5, 86]]),
    "no number": told(accesses=[[*ACCESS[:5], float("nan"), 5, 86]]),
    "an enormous number": told(accesses=[[*ACCESS[:7], MAX_COUNT + 1]]),
    "more accesses than there may be": told(accesses=[ACCESS] * (MAX_ACCESSES + 1)),
    "more loops than there may be": told(loops=[LOOP] * (MAX_LOOPS + 1)),
    "more trips than the most of each": told(loops=[[0, 0, 6, 2, 7, 2, 3]]),
    "fewer trips than the fewest of each": told(loops=[[0, 0, 6, 2, 3, 2, 3]]),
    "text for trips": told(loops=[[0, 0, 6, 2, "5", 2, 3]]),
    "text for what was left out": told(left_out="none"),
}

KERNEL = """import triton


@triton.jit
def double(x, y):
    for i in range(2):  # twice
        tl.store(  # what is read
            y + i, tl.load(x + i) * 2,
        )
    while True: pass
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[CaseJudge]:
    judge = CaseJudge(Case(SOFTMAX), choose_rung(trust_workspace=False), InterpreterDevice())
    yield judge
    judge.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "kernel.py").write_text(KERNEL)
    return tmp_path / "workspace"


def side(folder: Path, *replaced: tuple[str, str]) -> Side:
    """The softmax's workspace with some of its text replaced."""
    folder.chmod(0o755)
    workspace = shutil.copytree(SOFTMAX / "workspace", folder / "workspace")
    text = (workspace / "kernel.py").read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    (workspace / "kernel.py").write_text(text)
    return Side(tree=str(workspace), knobs=PASSES)


@pytest.mark.slow(4)
def test_counts_of_a_kernel_in_the_sandbox_are_exact(judge: CaseJudge, tmp_path: Path) -> None:
    """129 columns in steps of 256, rows two at a time: 67 rows are 34 tiles, of which the last is half a tile.

    Rows that do not exist are read as the last one, and not written.
    """
    seen: list[Progress] = []
    report = judge.lanes(side(tmp_path), seen.append, ["odd_67x129"])
    [found] = report.problems
    assert (found.problem, found.detail, found.left_out) == ("odd_67x129", "", 0)
    [kernel] = found.kernels
    assert (kernel.kernel, kernel.launches, kernel.programs) == ("looped_rows", 1, 34)
    *loads, store = found.accesses
    for load in loads:
        assert load.source.startswith("value = tl.load(x + ")
        assert (load.kind, load.runs, load.lanes) == ("load", 34, 34 * 2 * 256)
        assert (load.masked, load.bytes) == (34 * 2 * (256 - 129), 34 * 2 * 129 * 2)
    assert store.source.startswith("tl.store(y + first + column, result.to(tl.bfloat16), mask=real & ")
    assert (store.kind, store.runs, store.lanes) == ("store", 34, 34 * 2 * 256)
    assert (store.masked, store.bytes) == (34 * 2 * 256 - 67 * 129, 67 * 129 * 2)
    assert [(loop.entries, loop.trips, loop.fewest, loop.most) for loop in found.loops] == [
        (34, 34, 1, 1)
    ] * 4
    heads = [loop.source for loop in found.loops]
    assert heads.count("for start in tl.range(0, columns, BLOCK, num_stages=STAGES):") == 3
    lines = (SOFTMAX / "workspace" / "kernel.py").read_text().splitlines()
    for place in (*found.accesses, *found.loops):
        file, line = place.place.split(":")
        assert file == "kernel.py"
        assert lines[int(line) - 1].strip().split("(")[0] in place.source
    masked = 4 * 34 * 2 * 256 - 3 * 34 * 2 * 129 - 67 * 129
    assert found.masked_share() == found.masked_share("looped_rows") == masked / (4 * 34 * 2 * 256)
    assert found.masked_share("another") is None
    assert {progress.stage for progress in seen} == {"lanes"}
    assert type(report).model_validate_json(report.model_dump_json()) == report


@pytest.mark.slow(
    2,
    only=[
        "def run(-def walk(-does_not_load: ",
        "factor = 1 / total-factor = 2 / total-wrong_result: problem tiny_3x5, inputs normal",
    ],
)
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("def run(", "def walk(", "does_not_load: "),
        ("    rows, columns = x.shape\n", "    raise ValueError('not today')\n", "raised: "),
        ("factor = 1 / total", "factor = 2 / total", "wrong_result: problem tiny_3x5, inputs normal"),
    ],
)
def test_what_fails_while_counted_is_told(
    judge: CaseJudge, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    found = judge.lanes(side(tmp_path, (old, new)), lambda progress: None, ["tiny_3x5", "single_1x1"])
    assert [one.problem for one in found.problems] == ["tiny_3x5", "single_1x1"]
    for one in found.problems:
        assert one.detail.startswith("not counted: interpreted, it stopped, ")
        assert reason in one.detail
        assert (one.kernels, one.accesses, one.loops) == ((), (), ())


def test_a_large_problem_is_told_to_be_one(judge: CaseJudge) -> None:
    found = judge.lanes(Side(tree=str(SOFTMAX / "workspace")), lambda progress: None, ["square_4096x4096"])
    assert found.problems[0].detail.startswith("not counted: it moves 67108864 bytes")


@pytest.mark.slow(6)
def test_they_cross_to_the_controller(tmp_path: Path) -> None:
    there = LocalJudge(SOFTMAX, tmp_path / "judge.log")
    try:
        found = there.lanes(side(tmp_path), lambda progress: None, ["tiny_3x5", "wide_512x65536"])
    finally:
        there.close()
    assert [one.problem for one in found.problems] == ["tiny_3x5", "wide_512x65536"]
    assert found.problems[0].masked_share() == (4 * 2 * 2 * 256 - 3 * 2 * 2 * 5 - 3 * 5) / (4 * 2 * 2 * 256)
    assert found.problems[1].detail.startswith("not counted: it moves 134217728 bytes")


@pytest.mark.slow(3)
def test_the_largest_that_are_interpreted_are_chosen(judge: CaseJudge) -> None:
    assert chosen(judge._duels.contract) == ["long_2x33333", "odd_67x129"]


def test_cases_and_problems_that_have_no_lanes_are_refused(judge: CaseJudge, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no problem 'square'; it has square_4096x4096, "):
        judge.lanes(Side(tree="nowhere"), lambda progress: None, ["square"])
    plain = CaseJudge(Case(write_case(tmp_path)), choose_rung(trust_workspace=False), CpuDevice())
    with pytest.raises(UsageError, match="has no Triton kernels"):
        plain.lanes(Side(tree="nowhere"), lambda progress: None, [])


def test_the_right_form_is_taken(tree: Path) -> None:
    found = parse_lanes(TOLD, "small", Statements(tree))
    assert found.accesses == (
        LaneCount(
            kernel="double",
            place="kernel.py:7",
            source="tl.store(y + i, tl.load(x + i) * 2)",
            kind="load",
            runs=3,
            lanes=48,
            masked=5,
            bytes=86,
        ),
    )
    assert found.loops == (
        TripCount(
            kernel="double",
            place="kernel.py:6",
            source="for i in range(2):",
            entries=2,
            trips=5,
            fewest=2,
            most=3,
        ),
    )
    assert found.accesses[0].share == 5 / 48
    assert found.loops[0].mean == 2.5


@pytest.mark.parametrize("name", FORGED)
def test_no_other_form_is_taken(tree: Path, name: str) -> None:
    with pytest.raises(CandidateFault) as caught:
        parse_lanes(FORGED[name], "small", Statements(tree))
    assert caught.value.reason is Reason.BROKE_PROTOCOL
    assert len(caught.value.detail) < 200
    assert caught.value.detail.isprintable()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.integers(0, 3)
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
ROWS = st.lists(st.lists(SCALARS, min_size=5, max_size=8), max_size=2)


@given(
    st.fixed_dictionaries({name: ROWS | ANYTHING | st.just(value) for name, value in TOLD.items()}) | ANYTHING
)
def test_whatever_is_answered_is_counts_or_a_fault(answer: object) -> None:
    try:
        found = parse_lanes(answer, "small", Statements(Path("/nowhere")))
    except CandidateFault:
        return
    assert Lanes.model_validate_json(found.model_dump_json()) == found
    assert 0 <= (found.masked_share() or 0) <= 1


def test_kernels_of_one_name_are_told_apart(tree: Path) -> None:
    kernels = [["double", 0, 5, 1, 3], ["double", 0, 9, 1, 3], ["other", 0, 9, 1, 3]]
    found = parse_lanes(told(kernels=kernels), "small", Statements(tree))
    names = ["double (kernel.py:5)", "double (kernel.py:9)", "other"]
    assert [kernel.kernel for kernel in found.kernels] == names
    assert found.accesses[0].kernel == names[0]


def test_where_no_kernel_ran_it_is_told(tree: Path) -> None:
    nothing = told(files=[], kernels=[], accesses=[], loops=[])
    assert parse_lanes(nothing, "small", Statements(tree)).detail == "not counted: no Triton kernel ran"


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (1, "import triton"),
        (2, ""),
        (5, "def double(x, y):"),
        (6, "for i in range(2):"),
        (8, "tl.store(y + i, tl.load(x + i) * 2)"),
        (10, "pass"),
        (0, ""),
        (10**15, ""),
    ],
)
def test_statements_are_quoted_on_one_line(tree: Path, line: int, source: str) -> None:
    assert Statements(tree).at("kernel.py", line) == source


def test_only_source_of_the_workspace_is_quoted(tree: Path) -> None:
    (tree.parent / "secret.py").write_text("password = 1\n")
    (tree / "link.py").symlink_to(tree.parent / "secret.py")
    (tree / "notes.md").write_text("notes = 1\n")
    (tree / "broken.py").write_text("def (")
    (tree / "deep.py").write_text("x = " + "-" * 100_000 + "1\n")
    (tree / "long.py").write_text(f"x = {'y' * 300}\n")
    (tree / "wild.py").write_text('x = """\x1b[2J"""\n')
    statements = Statements(tree)
    for file in (
        "../secret.py",
        str(tree.parent / "secret.py"),
        "link.py",
        "notes.md",
        "broken.py",
        "deep.py",
        "none.py",
        ".",
    ):
        assert statements.at(file, 1) == ""
    assert len(statements.at("long.py", 1)) == MAX_SOURCE_CHARS
    assert statements.at("wild.py", 1).isprintable()
