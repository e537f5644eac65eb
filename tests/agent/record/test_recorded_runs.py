"""Wins are found again by their trailers, whatever became of the branch; what was reverted is taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import RecordedRun, find_runs, is_shallow
from hillclimb.agent.record.trailers import read_blocks
from hillclimb.agent.review.history import pick_run, show_table
from tests.agent.climb.climbed import CASE, climb_toy, git
from tests.fakes.night import Night

BRANCH = "hillclimb/demo/toy/first"


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("climb")
    climb_toy(folder)
    git(folder, "branch", "-M", "main")
    return folder


@pytest.fixture(scope="module")
def expected(climbed: Path) -> list[int]:
    found = [win.n for win in Ledger.read(climbed / "runs" / CASE / "first/ledger.jsonl").wins]
    assert len(found) >= 3
    return found


@pytest.fixture
def root(climbed: Path, tmp_path: Path) -> Path:
    shutil.copytree(climbed, tmp_path / "copy")
    return tmp_path / "copy"


def first(root: Path) -> RecordedRun:
    [run] = find_runs(Repository.open(root, for_reading=True), CASE)
    return run


def numbers(run: RecordedRun, *, taken_back: bool = False) -> list[int]:
    return [win.n for win in run.wins if win.is_taken_back is taken_back]


def drop_branch(root: Path) -> None:
    git(root, "branch", "-q", "-D", BRANCH)


def commit(root: Path, message: str) -> None:
    git(root, "commit", "-q", "--allow-empty", "-m", message)


def test_after_the_merge_and_the_end_of_the_branch(root: Path, expected: list[int]) -> None:
    git(root, "merge", "-q", "--no-ff", "-m", "take the wins", BRANCH)
    before = first(root)
    drop_branch(root)
    run = first(root)
    assert (run.run, run.tag, run.ref) == ("demo/toy/first", "first", "")
    assert numbers(run) == expected and run.wins == before.wins


def test_after_a_squash_of_gits_own(root: Path, expected: list[int]) -> None:
    git(root, "merge", "-q", "--squash", BRANCH)
    git(root, "commit", "-q", "--no-edit")
    drop_branch(root)
    run = first(root)
    assert numbers(run) == expected
    assert {win.commit for win in run.wins} == {git(root, "rev-parse", "HEAD").strip()}


def test_after_a_squash_in_a_pull_request(root: Path, expected: list[int]) -> None:
    messages = git(root, "log", "--reverse", "--format=* %B", f"main..{BRANCH}")
    commit(root, f"Take the wins (#12)\n\n{messages}\n---------\n\nCo-authored-by: somebody <a@b>")
    drop_branch(root)
    assert numbers(first(root)) == expected


def test_after_cherry_picks_and_a_rebase(root: Path, expected: list[int]) -> None:
    commit(root, "something else meanwhile")
    git(root, "cherry-pick", "-x", "--signoff", f"main..{BRANCH}")
    drop_branch(root)
    run = first(root)
    assert numbers(run) == expected
    assert run.wins[0].trailers["Run"] == "demo/toy/first"


def test_of_several_commits_of_a_win_the_runs_own_is_told(root: Path, expected: list[int]) -> None:
    commit(root, "something else meanwhile")
    git(root, "cherry-pick", f"main..{BRANCH}")
    own = git(root, "rev-list", "--reverse", f"main..{BRANCH}", "^main").split()
    assert [win.commit for win in first(root).wins] == own
    assert numbers(first(root)) == expected


def test_in_a_bare_repository(root: Path, tmp_path: Path, expected: list[int]) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    assert numbers(first(tmp_path / "bare.git")) == expected


def test_a_shallow_clone_is_a_part(root: Path, tmp_path: Path, expected: list[int]) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", BRANCH, f"file://{root}", "clone")
    repository = Repository.open(tmp_path / "clone")
    assert is_shallow(repository) and not is_shallow(Repository.open(root))
    assert numbers(first(tmp_path / "clone")) == expected[-1:]


def test_on_a_detached_head_that_no_ref_has(root: Path, expected: list[int]) -> None:
    git(root, "checkout", "-q", "--detach", BRANCH)
    drop_branch(root)
    assert numbers(first(root)) == expected


class TestTakenBack:
    def test_a_reverted_win_is_taken_back(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--ff-only", BRANCH)
        git(root, "revert", "--no-edit", "HEAD")
        run = first(root)
        assert (numbers(run), numbers(run, taken_back=True)) == (expected[:-1], expected[-1:])

    def test_a_revert_by_reference_takes_back(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--ff-only", BRANCH)
        git(root, "revert", "--no-edit", "--reference", "HEAD")
        run = first(root)
        assert (numbers(run), numbers(run, taken_back=True)) == (expected[:-1], expected[-1:])

    def test_a_revert_of_the_revert_brings_it_back(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--ff-only", BRANCH)
        for _ in range(2):
            git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root)) == expected
        git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root)) == expected[:-1]

    def test_a_reverted_merge_takes_back_all_that_it_brought(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--no-ff", "-m", "take the wins", BRANCH)
        git(root, "revert", "--no-edit", "-m", "1", "HEAD")
        assert numbers(first(root), taken_back=True) == expected
        git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root)) == expected

    def test_a_reverted_squash_takes_back_all_of_it(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--squash", BRANCH)
        git(root, "commit", "-q", "--no-edit")
        git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root), taken_back=True) == expected

    def test_a_reverted_cherry_pick_is_taken_back_where_head_has_it(
        self, root: Path, expected: list[int]
    ) -> None:
        commit(root, "something else meanwhile")
        git(root, "cherry-pick", f"main..{BRANCH}")
        git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root), taken_back=True) == expected[-1:]
        git(root, "checkout", "-q", BRANCH)
        assert numbers(first(root)) == expected

    def test_a_win_that_is_taken_again_counts_again(self, root: Path, expected: list[int]) -> None:
        commit(root, "something else meanwhile")
        git(root, "cherry-pick", f"main..{BRANCH}")
        git(root, "revert", "--no-edit", "HEAD")
        git(root, "cherry-pick", BRANCH)
        assert numbers(first(root)) == expected

    def test_a_reverted_merge_with_a_revert_in_it_takes_back_all(
        self, root: Path, expected: list[int]
    ) -> None:
        git(root, "checkout", "-q", BRANCH)
        git(root, "revert", "--no-edit", "HEAD")
        git(root, "checkout", "-q", "main")
        git(root, "merge", "-q", "--no-ff", "-m", "take the wins", BRANCH)
        assert numbers(first(root), taken_back=True) == expected[-1:]
        git(root, "revert", "--no-edit", "-m", "1", "HEAD")
        assert numbers(first(root), taken_back=True) == expected
        git(root, "revert", "--no-edit", "HEAD")
        assert numbers(first(root), taken_back=True) == expected[-1:]

    @pytest.mark.parametrize("how", ["cherry-pick", "squash"])
    def test_a_revert_is_found_though_it_names_a_commit_that_was_left_behind(
        self, root: Path, expected: list[int], how: str
    ) -> None:
        git(root, "checkout", "-q", BRANCH)
        git(root, "revert", "--no-edit", "HEAD")
        git(root, "checkout", "-q", "main")
        commit(root, "something else meanwhile")
        if how == "cherry-pick":
            git(root, "cherry-pick", f"main..{BRANCH}")
        else:
            git(root, "merge", "-q", "--squash", BRANCH)
            git(root, "commit", "-q", "--no-edit", "--allow-empty")
        drop_branch(root)
        assert numbers(first(root), taken_back=True) == expected[-1:]

    def test_a_revert_by_the_subject_alone(self, root: Path, expected: list[int]) -> None:
        """As a host for pull requests words it."""
        messages = git(root, "log", "--reverse", "--format=* %B", f"main..{BRANCH}")
        commit(root, f"Take the wins (#12)\n\n{messages}")
        drop_branch(root)
        commit(root, 'Revert "Take the wins (#12)" (#13)\n\nReverts owner/repository#12')
        assert numbers(first(root), taken_back=True) == expected

    def test_a_revert_in_a_branch_that_head_does_not_have_takes_nothing_back(
        self, root: Path, expected: list[int]
    ) -> None:
        git(root, "checkout", "-q", "-b", "experiment", BRANCH)
        git(root, "revert", "--no-edit", "HEAD")
        git(root, "checkout", "-q", "main")
        assert numbers(first(root)) == expected

    def test_an_idea_forges_no_revert(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--ff-only", BRANCH)
        win, last = git(root, "rev-parse", "HEAD~1").strip(), git(root, "log", "-1", "--format=%B")
        body = last.partition("\n")[2]
        idea = f"This reverts commit {win}."
        commit(root, f"{idea} (1.100x)\n{body}".replace("Hillclimb-Idea: ", f"Hillclimb-Idea: {idea} "))
        assert numbers(first(root), taken_back=True) == []

    def test_reverts_of_other_things_take_nothing_back(self, root: Path, expected: list[int]) -> None:
        git(root, "merge", "-q", "--ff-only", BRANCH)
        (root / "other").write_text("x\n")
        git(root, "add", "other")
        commit(root, "other")
        git(root, "revert", "--no-edit", "HEAD")
        commit(root, "Words\n\nThis reverts commit 0123456789abcdef0123456789abcdef01234567.")
        commit(root, "Words\n\nThis reverts commit 0123456, reversing\nchanges made to 89abcde.")
        assert numbers(first(root)) == expected


def test_rejected_candidates_and_other_cases_are_no_wins(root: Path, expected: list[int]) -> None:
    message = git(root, "log", "-1", "--format=%B", BRANCH)
    commit(root, message.replace("Hillclimb-Run: demo/toy/first", "Hillclimb-Run: other/demo/toy"))
    commit(root, message.replace("Hillclimb-Verdict: kept", "Hillclimb-Verdict: rejected"))
    commit(root, "Words\n\nHillclimb-Run: demo/toy/first\nHillclimb-Verdict: kept\nHillclimb-Candidate: 99")
    assert numbers(first(root)) == expected


def test_another_run_of_the_same_name_is_another_run(root: Path, tmp_path: Path, expected: list[int]) -> None:
    git(root, "merge", "-q", "--no-ff", "-m", "take the wins", BRANCH)
    drop_branch(root)
    for folder in ("runs", ".git/refs/hillclimb"):  # as in the clone of somebody else
        shutil.rmtree(root / folder)
    Night(root, tag="first", plan=("crash", "both", "tune")).climb()
    newer, older = sorted(find_runs(Repository.open(root), CASE), key=lambda run: not run.ref)
    assert (newer.tag, older.tag, older.ref) == ("first", "first", "")
    assert numbers(older) == expected and numbers(newer) == [2]
    assert len({win.trailers["Base"] for win in (*newer.wins, *older.wins)}) == 2
    picked = pick_run(Repository.open(root), CASE, "first")
    assert picked.others == 1 and "1 other run of this name" in show_table(picked)


def test_wins_below_the_branch_of_another_run_are_found(root: Path, expected: list[int]) -> None:
    git(root, "merge", "-q", "--ff-only", BRANCH)
    drop_branch(root)
    Night(root, tag="second", plan=("crash", "both")).climb()
    found = {run.tag: run for run in find_runs(Repository.open(root), CASE)}
    assert (numbers(found["first"]), numbers(found["second"])) == (expected, [2])
    assert (found["first"].ref, found["second"].ref) == ("", "refs/heads/hillclimb/demo/toy/second")


def test_a_broken_ref_hides_nothing(root: Path, expected: list[int]) -> None:
    (root / ".git/refs/heads/broken").write_text("1" * 40 + "\n")
    assert numbers(first(root)) == expected


def test_line_ends_of_another_system_hide_no_win(root: Path, expected: list[int]) -> None:
    message = git(root, "log", "-1", "--format=%B", BRANCH).replace("\n", "\r\n")
    drop_branch(root)
    git(root, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message)
    assert numbers(first(root)) == expected[-1:]


def test_a_repository_without_commits_has_no_runs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert find_runs(Repository.open(tmp_path), CASE) == []


def test_blocks_are_told_apart() -> None:
    head = "Hillclimb-Run: a/b/c\nHillclimb-Verdict: kept\nHillclimb-Candidate: "
    indented = "    " + f"{head}2\n{head}3\n".replace("\n", "\n    ")
    text = f"* one (1.1x)\n\n{head}1\nSigned-off-by: x <y>\n\n    Hillclimb-Run: two\n\n{indented}\n"
    assert [block.get("Candidate") for block in read_blocks(text)] == ["1", None, "2", "3"]
