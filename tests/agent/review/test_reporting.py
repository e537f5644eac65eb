"""`hillclimb report` gathers: diffs out of git, the case as it began, and a page that is there whole or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.review.patches import BATCH
from hillclimb.agent.review.reporting import MAX_REJECTED_DIFF_CHARACTERS, collect_diffs, gather, write_report
from hillclimb.harness.errors import StorageError, UsageError
from hillclimb.harness.report.page_ledger import read_history
from tests.agent.climb.climbed import CASE as TOY
from tests.agent.climb.climbed import climb_toy, git
from tests.harness.report.page_night import CASE, TAG, Night


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return Night(tmp_path_factory.mktemp("night"), 40).write()


def test_a_real_climb_is_reported(tmp_path: Path) -> None:
    climb_toy(tmp_path)
    repository = Repository.open(tmp_path)
    path = write_report(repository, TOY, None, None)
    assert path == tmp_path / "runs/demo/toy/first/report.html"
    sources = gather(repository, path.parent)
    ledger = Ledger.read(path.parent / "ledger.jsonl")
    for candidate in ledger.candidates:
        assert candidate.judged
        diff = sources.diffs[candidate.n]
        if candidate.judged.commit:
            parent, commit = candidate.judged.parent, candidate.judged.commit
            shown = git(tmp_path, "diff", "--relative=cases/demo/toy/workspace/", parent, commit)
            assert _lines(shown) == _lines(diff.text)
    assert {facts.name for facts in sources.knobs} == {"TILE", "UNROLL", "TRICK"}
    assert sources.settings
    assert sources.settings.budgets.candidates == 50
    assert set(sources.defaults) == {"TILE", "UNROLL", "TRICK"}


def test_a_win_that_was_reverted_is_marked_and_not_counted(tmp_path: Path) -> None:
    climb_toy(tmp_path)
    path, repository = tmp_path / "report.html", Repository.open(tmp_path)
    (run,) = find_runs(repository, TOY)
    last, wins = run.wins[-1], len(run.wins)
    write_report(repository, TOY, None, path)
    assert "taken back" not in path.read_text()
    git(tmp_path, "merge", "-q", "--no-edit", run.commit)
    git(tmp_path, "revert", "--no-edit", last.commit)
    write_report(repository, TOY, None, path)
    page = path.read_text()
    assert gather(repository, tmp_path / "runs/demo/toy/first").taken_back == {last.n}
    assert page.count('<span class="tag">taken back</span>') == 1
    assert "1 win taken back by later commits" in page
    assert f"<dt>wins</dt><dd>{wins - 1}</dd>" in page


def _lines(diff: str) -> list[str]:
    """Without the abbreviated hashes, in whatever order the files come."""
    return sorted(line for line in diff.splitlines() if not line.startswith("index"))


def test_diffs_are_against_the_parent_and_code_comes_first(tmp_path: Path) -> None:
    def change(n: int, proposal: Proposal) -> Proposal:
        notes = Edit(path="docs/a.md", content=f"{n}\n")
        return proposal.model_copy(update={"edits": (notes, *proposal.edits)})

    night = Night(tmp_path, 14, change=change).write()
    diffs = collect_diffs(Repository.open(tmp_path), read_history(night.ledger))
    both = next(diff.text for diff in diffs.values() if "kernel.py" in diff.text)
    assert both.index("diff --git a/kernel.py") < both.index("diff --git a/docs/a.md")
    assert "@@" in both


def test_long_diffs_are_cut_and_say_where_the_rest_is(tmp_path: Path) -> None:
    def change(n: int, proposal: Proposal) -> Proposal:
        long = "".join(f"line {n} {i}\n" for i in range(2000))
        return proposal.model_copy(update={"edits": (Edit(path="kernel.py", content=long),)})

    night = Night(tmp_path, 9, with_model=False, change=change).write()
    chronicle = read_history(night.ledger)
    diffs = collect_diffs(Repository.open(tmp_path), chronicle)
    assert diffs[9].is_win
    assert len(diffs[9].text) > 3 * MAX_REJECTED_DIFF_CHARACTERS
    cut = next(seen for seen in chronicle.candidates if not seen.kept and seen.judged.get("commit"))
    assert len(diffs[cut.n].text) <= MAX_REJECTED_DIFF_CHARACTERS
    assert f"git show {cut.judged['commit']} has all of it" in diffs[cut.n].note


def test_what_git_no_longer_has_is_said(night: Night, tmp_path: Path) -> None:
    """The ledger alone, in a repository without the commits."""
    git(tmp_path, "init", "-q")
    folder = tmp_path / "runs" / CASE / TAG
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").write_bytes(night.ledger.read_bytes())
    sources = gather(Repository.open(tmp_path), folder)
    assert sources.settings is None
    assert sources.knobs == ()
    edited = next(
        seen for seen in sources.chronicle.candidates if seen.proposal["edits"] and seen.judged["commit"]
    )
    diff = sources.diffs[edited.n]
    assert "is gone from this repository; these are the files as they were proposed" in diff.note
    assert diff.text.startswith("diff --git kernel.py\n@@ -0,0 +1,")
    write_report(Repository.open(tmp_path), CASE, TAG, None)


def test_one_lost_object_costs_one_diff(tmp_path: Path) -> None:
    night = Night(tmp_path, BATCH // 10).write()
    chronicle = read_history(night.ledger)
    lost = next(seen for seen in chronicle.candidates if seen.proposal["edits"] and seen.judged["commit"])
    subprocess.run(
        ["git", "-C", str(tmp_path), "unpack-objects", "-q"], stdin=_moved_pack(tmp_path), check=True
    )
    blob = git(tmp_path, "rev-parse", f"{lost.judged['commit']}:cases/demo/toy/workspace/kernel.py").strip()
    (tmp_path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    diffs = collect_diffs(Repository.open(tmp_path), chronicle)
    gone = {n for n, diff in diffs.items() if "is gone" in diff.note}
    assert gone == {lost.n}


def _moved_pack(root: Path) -> int:
    """The fast-import pack, moved away so that its objects can be unpacked one by one."""
    (pack,) = (root / ".git/objects/pack").glob("*.pack")
    moved = pack.rename(root / "moved.pack")
    pack.with_suffix(".idx").unlink()
    return os.open(moved, os.O_RDONLY)


def test_a_case_without_knobs(night: Night) -> None:
    lines = night.ledger.read_text().replace("cases/demo/toy", "cases/demo/gone")
    folder = night.root / "runs" / CASE / "gone"
    folder.mkdir(exist_ok=True)
    (folder / "ledger.jsonl").write_text(lines)
    bare = gather(Repository.open(night.root), folder)
    assert (bare.knobs, bare.defaults) == ((), {})
    page = write_report(Repository.open(night.root), CASE, "gone", None).read_text()
    assert "Importance:" in page


def test_a_damaged_ledger_is_reported_as_far_as_it_goes(night: Night) -> None:
    lines = night.ledger.read_text().splitlines()
    folder = night.root / "runs" / CASE / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / "ledger.jsonl").write_text("\n".join([*lines[:9], "rubbish", *lines[9:]]) + "\n")
    page = write_report(Repository.open(night.root), CASE, "damaged", None).read_text()
    assert "1 line of the ledger could not be read" in page


def test_an_empty_ledger(night: Night, tmp_path: Path) -> None:
    folder = night.root / "runs" / CASE / "empty"
    folder.mkdir(exist_ok=True)
    (folder / "ledger.jsonl").touch()
    page = write_report(Repository.open(night.root), CASE, "empty", tmp_path / "new/out.html")
    assert page == tmp_path / "new/out.html"
    assert "the run has not begun" in page.read_text()


def test_the_wrong_place_is_refused(night: Night, tmp_path: Path) -> None:
    repository = Repository.open(night.root)
    with pytest.raises(UsageError, match=r"is a folder; name the file to write, such as .*report\.html"):
        write_report(repository, CASE, TAG, tmp_path)
    with pytest.raises(UsageError, match="no run 'other'"):
        write_report(repository, CASE, "other", None)


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def refuse(source: Path, to: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StorageError, match="free some space"):
        write_report(Repository.open(night.root), CASE, TAG, target)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "old"
