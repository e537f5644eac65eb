"""What a run leaves out, what it draws, and what it says of it: on small suites of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.selection.changed import all_importers, beside, changed_files, nearest_tests
from tests.selection.draw import SECONDS_DRAWN, commit_here, draw
from tests.selection.imports import ROOT

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.slow(20)
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_long(name):
    pass

@pytest.mark.slow(61, but=["quick"])
@pytest.mark.parametrize("name", ["quick", "endless"])
def test_but(name):
    pass

@pytest.mark.slow(61, only=["endless"])
@pytest.mark.parametrize("name", ["quick", "endless"])
def test_only(name):
    pass

@pytest.mark.clock
def test_time():
    pass
"""

FAILING = """
import pytest
tries = []

@pytest.mark.clock
def test_once():
    tries.append(1)
    assert len(tries) == 2

@pytest.mark.clock
def test_always():
    assert False

def test_ordinary():
    assert False
"""

times = st.dictionaries(st.text(min_size=1), st.floats(0.1, 200), max_size=30)


@given(times, st.text())
def test_a_draw_fits_into_its_time_and_depends_on_the_commit_alone(
    slow: dict[str, float], commit: str
) -> None:
    drawn = draw(slow.items(), commit, SECONDS_DRAWN)
    assert sum(slow[name] for name in drawn) <= SECONDS_DRAWN
    assert drawn == draw(reversed(list(slow.items())), commit, SECONDS_DRAWN)
    left = SECONDS_DRAWN - sum(slow[name] for name in drawn)
    assert all(slow[name] > left for name in slow.keys() - drawn), "it would have fitted"


def test_in_time_every_one_that_fits_is_drawn() -> None:
    slow = [(f"test_{n}", 20.0) for n in range(20)]
    assert set().union(*(draw(slow, f"commit {n}", SECONDS_DRAWN) for n in range(100))) == {
        name for name, _ in slow
    }


def suite(pytester: pytest.Pytester, source: str = SUITE) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    clock\n")
    pytester.makepyfile(source)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "tests.selection.plugin", "-p", "no:xdist", "-v", *options)


def passed(result: pytest.RunResult) -> set[str]:
    return {line.split("::")[1].split()[0] for line in result.outlines if " PASSED" in line}


PLAIN = {"test_but[quick]", "test_only[quick]", "test_time"}
SLOW = {"test_long[a]", "test_long[b]", "test_long[c]", "test_but[endless]", "test_only[endless]"}


def test_slow_ones_are_left_out_but_for_the_draw_and_it_is_told(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = run(pytester, "--draw", "abc")
    (drawn,) = passed(result) - PLAIN
    assert drawn.startswith("test_long[") and passed(result) >= PLAIN
    result.stdout.fnmatch_lines(
        ["slow tests: 4 left out, 1 drawn by abc;*", "*::test_long?*", "*./scripts/test --draw abc -m slow"]
    )
    assert passed(run(pytester, "--draw", "abc")) == {*PLAIN, drawn}


def test_all_of_them_and_those_that_are_named_run(pytester: pytest.Pytester) -> None:
    suite(pytester)
    assert passed(run(pytester, "--all")) == PLAIN | SLOW
    assert passed(run(pytester, f"{next(pytester.path.glob('*.py')).name}::test_long")) == {
        f"test_long[{name}]" for name in "abc"
    }


def test_what_needs_the_machine_for_itself_runs_apart(pytester: pytest.Pytester) -> None:
    suite(pytester)
    assert passed(run(pytester, "--alone", "only")) == {"test_time"}
    assert passed(run(pytester, "--alone", "never", "--draw", "none of them")) >= PLAIN - {"test_time"}


def test_a_second_try_is_for_the_clock_alone_and_both_outcomes_are_told(pytester: pytest.Pytester) -> None:
    suite(pytester, FAILING)
    result = run(pytester)
    assert result.parseoutcomes() == {"passed": 1, "failed": 2, "rerun": 2}
    told = [line for line in result.outlines if line.startswith("clock: ")]
    assert [line.split("::")[1].split(";")[0] for line in told] == [
        "test_always failed, then failed again",
        "test_once failed, then passed",
    ]


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("slow", "say how many seconds it takes"),
        ('slow(9, but=["c"])', "['c'], which names none of its parameters"),
    ],
)
def test_a_marker_that_says_too_little_or_names_nothing_is_an_error(
    pytester: pytest.Pytester, marker: str, told: str
) -> None:
    suite(pytester, f"import pytest\n\n@pytest.mark.{marker}\ndef test_a():\n    pass\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stderr.str() + result.stdout.str()


def test_after_its_time_a_quick_run_begins_nothing(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = run(pytester, "--until", "0")
    assert (
        passed(result) == set()
        and "./scripts/test runs it" in run(pytester, "--until", "0", "-rs").stdout.str()
    )
    assert result.ret == 0


@pytest.mark.slow(5)
def test_what_imports_a_changed_file_is_nearest() -> None:
    importers = all_importers()
    draw_file = ROOT / "tests" / "selection" / "draw.py"
    assert nearest_tests([draw_file], importers)[0] == Path(__file__)
    ledger = nearest_tests([ROOT / "agent" / "record" / "ledger.py"], importers)
    assert ROOT / "tests/agent/record/test_ledger.py" in ledger[:20]
    runner = nearest_tests([ROOT / "harness" / "candidate" / "runner.py"], importers)
    assert any(path.parent.name == "duel" for path in runner), "a program started by `python -m`"
    assert nearest_tests([ROOT / "README.md"], importers) == []
    assert beside([ROOT / "docs" / "index.md"]) == [ROOT / "tests/docs", ROOT / "tests/test_docs.py"]


def test_what_changed_is_the_working_tree_or_else_the_last_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("")
        git("add", "-A")
        git("commit", "-qm", name)
    assert changed_files(tmp_path) == [tmp_path / "two.py"]
    (tmp_path / "one.py").write_text("1\n")
    (tmp_path / "new one.py").write_text("")
    assert changed_files(tmp_path) == [tmp_path / "one.py", tmp_path / "new one.py"]
    assert len(commit_here(tmp_path)) == 9 and commit_here(tmp_path / "nowhere") == "none"
