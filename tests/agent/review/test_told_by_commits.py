"""A report of a run whose ledger is not here: merged and fetched, squashed, or in a bare repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.review.reporting import write_report
from hillclimb.agent.review.told_by_commits import read_commits
from hillclimb.harness.errors import UsageError
from hillclimb.harness.report.page_ledger import RunHistory, read_history
from tests.agent.climb.climbed import CASE, climb_toy, git


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose run was merged."""
    root = tmp_path_factory.mktemp("climbed")
    climb_toy(root, candidates=20)
    (run,) = find_runs(Repository.open(root), CASE)
    git(root, "merge", "-q", "--no-ff", "--no-edit", run.commit)
    return root


def _clone(climbed: Path, to: Path, *options: str) -> Path:
    subprocess.run(["git", "clone", "-q", *options, str(climbed), str(to)], check=True)
    return to


def _told(root: Path) -> RunHistory:
    repository = Repository.open(root, for_reading=True)
    (run,) = find_runs(repository, CASE)
    return read_commits(repository, run)


@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_commits_tell_what_the_ledger_tells_of_the_wins(
    climbed: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    ledger = read_history(climbed / "runs" / CASE / "first/ledger.jsonl")
    told = _told(_clone(climbed, tmp_path / "clone", *options))
    assert [seen.n for seen in told.candidates] == [win.n for win in ledger.wins]
    for seen, win in zip(told.candidates, ledger.wins, strict=True):
        assert seen.verdict == "kept"
        assert {name: seen.proposal[name] for name in ("idea", "author", "knobs")} == {
            name: win.proposal[name] for name in ("idea", "author", "knobs")
        }
        assert [edit["path"] for edit in seen.proposal["edits"]] == [
            edit["path"] for edit in win.proposal["edits"]
        ]
        assert (seen.judged["commit"], seen.judged["parent"]) == (win.judged["commit"], win.judged["parent"])
        assert seen.over_baseline == pytest.approx(win.over_baseline, abs=1e-4)
        assert seen.incumbent == pytest.approx(win.incumbent, abs=1e-4)
        assert seen.step.speedup == pytest.approx(win.step.speedup, abs=1e-4)
    assert told.opened["base"] == ledger.opened["base"]
    assert told.opened["case_path"] == ledger.opened["case_path"]
    assert told.opened["provenance"] == ledger.opened["provenance"]


def test_a_clone_gets_a_page_with_the_diffs(
    climbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = _clone(climbed, tmp_path / "clone")
    monkeypatch.chdir(tmp_path)
    path = write_report(Repository.open(clone), CASE, None, None)
    assert path == Path("hillclimb-demo-toy-first.html")
    page, wins = path.read_text(), read_history(climbed / "runs" / CASE / "first/ledger.jsonl").wins
    assert "the ledger of the run is not here" in page
    assert f"<dt>wins</dt><dd>{len(wins)}</dd>" in page
    assert page.count('data-label="commit"') == len(wins)
    assert "noise floor" not in page
    assert "TILE" in page


def test_a_squash_holds_all_its_wins(climbed: Path, tmp_path: Path) -> None:
    clone = _clone(climbed, tmp_path / "clone")
    (run,) = find_runs(Repository.open(clone), CASE)
    base = run.wins[0].trailers["Base"]
    subprocess.run(["git", "-C", str(clone), "checkout", "-q", "-b", "side", base], check=True)
    git(clone, "merge", "-q", "--squash", run.commit)
    git(
        clone,
        "commit",
        "-q",
        "-m",
        subprocess.check_output(
            ["git", "-C", str(clone), "log", "--format=%B", f"{base}..{run.commit}"], text=True
        ),
    )
    for ref in subprocess.check_output(
        ["git", "-C", str(clone), "for-each-ref", "--format=%(refname)"], text=True
    ).split():
        if ref != "refs/heads/side":
            git(clone, "update-ref", "-d", ref)
    told = _told(clone)
    assert [seen.n for seen in told.wins] == [win.n for win in run.wins]
    assert {seen.judged["parent"] for seen in told.wins} == {base}


def test_a_run_that_nothing_tells_of_is_refused(climbed: Path, tmp_path: Path) -> None:
    clone = Repository.open(_clone(climbed, tmp_path / "clone"))
    with pytest.raises(UsageError, match="no run 'other' of demo/toy"):
        write_report(clone, CASE, "other", None)


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("TILE=8, UNROLL=2", {"TILE": 8, "UNROLL": 2}),
        ('MODE="a, B=2", FAST=true', {"MODE": "a, B=2", "FAST": True}),
        ('RATE=0.5, MODE="cut o…', {"RATE": 0.5}),
        ("", {}),
        ("nothing of it", {}),
    ],
)
def test_knobs_are_read_from_their_line(told: str, read: dict[str, object]) -> None:
    from hillclimb.agent.review.told_by_commits import _read_knobs

    assert dict(_read_knobs(told)) == read
