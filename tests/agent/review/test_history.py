"""history and runs: wins from trailers alone, on the repository of the climb and on a clone of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import is_shallow
from hillclimb.agent.review.history import pick_run, show_json, show_table
from hillclimb.agent.review.listing import list_states, show_states
from hillclimb.harness.errors import UsageError
from tests.agent.climb.climbed import CASE, climb_toy, git


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("climb")
    climb_toy(folder)
    return folder


def table(folder: Path, tag: str | None = None) -> str:
    repository = Repository.open(folder, for_reading=True)
    return show_table(pick_run(repository, CASE, tag), is_shallow(repository))


def test_the_table_has_a_row_for_every_win_of_the_ledger(root: Path) -> None:
    ledger = Ledger.read(root / "runs" / CASE / "first" / "ledger.jsonl")
    heading, _, *rows = table(root).splitlines()
    assert ledger.wins
    heading, _, what = heading.partition(";")
    assert heading == f"demo/toy/first: {len(ledger.wins)} wins (refs/heads/hillclimb/demo/toy/first)"
    assert what == " over baseline as measured when each was kept"
    assert [row.split()[0] for row in rows] == [str(win.n) for win in ledger.wins]
    for row, win in zip(rows, ledger.wins, strict=True):
        assert win.judged and win.judged.commit and win.judged.commit[:10] in row
        assert win.proposal.idea in row


def test_a_clone_reads_the_same_wins_without_a_run_folder(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(root), "clone")
    rows = table(tmp_path / "clone").splitlines()[1:]
    assert rows == table(root).splitlines()[1:]
    assert not (tmp_path / "clone" / "runs").exists()


def test_a_persons_commits_on_top_hide_no_win(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--branch", "hillclimb/demo/toy/first", str(root), "clone")
    clone = tmp_path / "clone"
    (clone / "note").write_text("Hillclimb-Run: demo/toy/first\n")
    git(clone, "add", "note")
    git(clone, "commit", "-q", "-m", "Mine\n\nHillclimb-Run: demo/toy/first\nHillclimb-Verdict: none")
    git(clone, "commit", "-q", "-m", "Mine too", "--allow-empty")
    assert table(clone).splitlines()[1:] == table(root).splitlines()[1:]


def test_a_shallow_clone_tells_of_the_wins_it_has(root: Path, tmp_path: Path) -> None:
    branch = "hillclimb/demo/toy/first"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", branch, f"file://{root}", "clone")
    heading, part, _, row = table(tmp_path / "clone").splitlines()
    assert heading.startswith("demo/toy/first: 1 win (")
    assert part == "this clone is shallow, and there may be more wins: git fetch --unshallow"
    assert row.split() == table(root).splitlines()[-1].split()


def test_json_carries_every_trailer(root: Path) -> None:
    repository = Repository.open(root)
    document = json.loads(show_json(pick_run(repository, CASE, "first")))
    assert document["run"] == "demo/toy/first"
    assert document["wins"][0]["speedup"]["estimate"] > 1
    assert {"Run", "Verdict", "Speedup", "Contract", "Harness"} <= document["wins"][0]["trailers"].keys()


def test_an_unknown_tag_names_those_there_are(root: Path) -> None:
    with pytest.raises(UsageError, match="there are: first"):
        table(root, "second")
    with pytest.raises(UsageError, match="no run of demo/other"):
        pick_run(Repository.open(root), "demo/other", None)


def test_runs_are_listed_with_their_state(root: Path) -> None:
    (state,) = list_states(root, CASE)
    assert state.run == "demo/toy/first"
    assert state.state.startswith("finished: ")
    assert state.wins > 0 and state.speedup > 1
    assert "demo/toy/first" in show_states([state])
    assert list_states(root, "demo/other") == []
    assert "no runs" in show_states([])


def test_a_damaged_ledger_is_listed_as_such_beside_the_others(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs" / CASE
    shutil.copytree(root / "runs" / CASE / "first", runs / "first")
    shutil.copytree(root / "runs" / CASE / "first", runs / "broken")
    ledger = runs / "broken" / "ledger.jsonl"
    ledger.write_bytes(b"{}\n" + ledger.read_bytes())
    found = {state.run: state.state for state in list_states(tmp_path, None)}
    assert found["demo/toy/first"].startswith("finished: ")
    assert found["demo/toy/broken"].startswith("damaged: ")
    assert "line 1" in found["demo/toy/broken"]
