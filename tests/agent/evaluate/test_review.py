"""Commits judged anew: what they claim beside what is found, by the rules that lie in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.agent.evaluate.review import BASELINE, PARENT, duel, find_subject, measure
from hillclimb.agent.evaluate.review_result import ReviewResult, describe
from hillclimb.agent.git.repository import Repository
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Comparison, Confirmation, Reason, Side, Watch
from tests.fakes.cases import HONEST, repeated, write_case
from tests.fakes.judge import PROVENANCE, SimulatedJudge
from tests.fakes.night import Night, git, make_repository
from tests.fakes.toy import kernel

BRANCH = "hillclimb/demo/toy/night"
REJECTED = "refs/hillclimb/demo/toy/night/rejected"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    night = Night(make_repository(tmp_path_factory.mktemp("night") / "repository"))
    night.climb()
    return night


def review(
    night: Night,
    revision: str,
    against: str = PARENT,
    case: str | None = None,
    judge: SimulatedJudge | None = None,
) -> ReviewResult:
    judge = judge or SimulatedJudge()
    subject = find_subject(Repository.open(night.root), revision, against, case)
    found = duel(subject, lambda folder, log: judge, lambda progress: None)
    assert judge.closed
    return found


class _Elsewhere(SimulatedJudge):
    """The same landscape on another machine, where nothing is as fast as it was."""

    def __init__(self) -> None:
        changes = {"device": "another CPU", "harness": "d" * 64}
        super().__init__(PROVENANCE.model_copy(update=changes))

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        found = super().confirm(candidate, incumbent, baseline, alpha, watch)
        return found.model_copy(
            update={"reason": Reason.NO_PROVEN_GAIN, "detail": "nothing in it", "speedup": None}
        )


def test_a_win_is_confirmed_against_its_parent(night: Night) -> None:
    found = review(night, f"{BRANCH}~1")
    assert (found.finding, found.run, found.n) == ("confirmed", "demo/toy/night", 5)
    assert found.claim.speedup and found.claim.speedup.estimate == pytest.approx(1.25)
    assert found.speedup and found.speedup.estimate == pytest.approx(1.25)
    assert (found.agrees, found.same_device, found.notes) == (True, True, ())
    said = describe(found)
    assert "then: kept 1.250x [1.238, 1.262] on simulated" in said
    assert "now: 1.250x" in said
    assert "confirmed: the intervals overlap" in said


def test_the_baseline_is_where_the_run_began(night: Night) -> None:
    found = review(night, BRANCH, BASELINE)
    assert found.against == git(night.root, "rev-parse", "main").strip()
    assert found.claim.speedup and found.speedup
    assert found.speedup.estimate == pytest.approx(found.claim.speedup.estimate, rel=1e-3)


def test_any_other_commit_may_be_the_other_side(night: Night) -> None:
    found = review(night, BRANCH, f"{BRANCH}~1")
    assert (found.finding, found.claim.speedup, found.agrees) == ("confirmed", None, None)
    assert review(night, f"{BRANCH}~1", BRANCH).finding == "reversed"


def test_a_rejected_candidate_can_be_reviewed_too(night: Night) -> None:
    found = review(night, f"{REJECTED}/4")
    assert (found.finding, found.reason, found.claim.reason) == ("reversed", Reason.SLOWER, "slower")
    assert "then: rejected (slower) with no speedup over this side" in describe(found)
    assert review(night, f"{REJECTED}/2").reason == Reason.CRASHED


def test_another_machine_is_told(night: Night) -> None:
    found = review(night, BRANCH, judge=_Elsewhere())
    assert (found.finding, found.same_device) == ("not_confirmed", False)
    said = describe(found)
    assert "note: another device: judged then on simulated, now on another CPU" in said
    assert "note: the harness is not the one it was judged by (sha256 aaaaaaaaaaaa, now dddddddddddd)" in said
    assert "no_proven_gain: nothing in it" in said


def test_the_rules_of_the_commit_decide_and_changed_working_files_are_told(
    night: Night, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(night.root), "clone")
    root = tmp_path / "clone"
    settings = root / "cases/demo/toy/case.yaml"
    settings.write_text(settings.read_text() + "duel: {alpha: 0.2}\n")
    subject = find_subject(Repository.open(root), f"origin/{BRANCH}", PARENT, None)
    asked: list[float] = []

    class Noting(SimulatedJudge):
        def confirm(
            self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
        ) -> Confirmation:
            asked.append(alpha)
            return super().confirm(candidate, incumbent, baseline, alpha, watch)

    found = duel(subject, lambda folder, log: Noting(), lambda progress: None)
    assert asked == [0.01]
    assert any("case.yaml is not what the commit has" in note for note in found.notes)


def test_a_commit_that_changes_its_own_rules_is_not_confirmed(night: Night, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(night.root), "clone")
    root = tmp_path / "clone"
    git(root, "checkout", "-q", "-b", "forged", f"origin/{BRANCH}~1")
    message = git(root, "log", "-1", "--format=%B")
    (root / "cases/demo/toy/contract.py").write_text("# anything goes\n")
    (root / "cases/demo/toy/workspace/kernel.py").write_text(kernel(99.0))
    git(root, "commit", "-q", "-a", "-m", message)
    forged = Night(root)
    found = review(forged, "forged")
    assert (found.finding, found.reason) == ("not_confirmed", Reason.OUTSIDE_WORKSPACE)
    assert "contract.py is not what it is in" in found.detail
    other = review(forged, "forged", "main")  # asked for by name, it is measured, and said
    assert other.finding == "confirmed"
    assert any("contract.py differs between the two commits" in note for note in other.notes)


def test_first_against_last_is_measured(night: Night) -> None:
    subject = find_subject(Repository.open(night.root), BRANCH, BASELINE, None)
    found = measure(subject, lambda folder, log: SimulatedJudge(), lambda progress: None)
    assert (found.kind, found.finding) == ("first-last", "confirmed")
    assert found.speedup and found.speedup.estimate == pytest.approx(night.ledger.cumulative)


def test_a_commit_that_fails_the_gate_is_measured_no_further(night: Night) -> None:
    subject = find_subject(Repository.open(night.root), f"{REJECTED}/2", BASELINE, None)
    found = measure(subject, lambda folder, log: SimulatedJudge(), lambda progress: None)
    assert (found.finding, found.reason, found.speedup) == ("not_confirmed", Reason.CRASHED, None)


@pytest.mark.parametrize(("low", "high", "finding"), [(0.8, 0.9, "reversed"), (0.9, 1.1, "not_confirmed")])
def test_a_measurement_says_which_way_it_went(night: Night, low: float, high: float, finding: str) -> None:
    class Slow(SimulatedJudge):
        def compare(self, first, last, stage, watch) -> Comparison:  # type: ignore[no-untyped-def]
            found = super().compare(first, last, stage, watch)
            speedup = found.speedup.model_copy(
                update={"estimate": (low + high) / 2, "low": low, "high": high}
            )
            return found.model_copy(update={"speedup": speedup})

    subject = find_subject(Repository.open(night.root), BRANCH, BASELINE, None)
    found = measure(subject, lambda folder, log: Slow(), lambda progress: None)
    assert (found.finding, found.agrees) == (finding, False)
    assert "the intervals do not overlap, and it is less than was claimed" in describe(found)


def test_nothing_is_written(night: Night) -> None:
    before = (git(night.root, "for-each-ref"), (night.folder / "ledger.jsonl").read_bytes())
    review(night, BRANCH)
    assert (git(night.root, "for-each-ref"), (night.folder / "ledger.jsonl").read_bytes()) == before
    assert git(night.root, "status", "--porcelain") == ""


def test_words_of_a_commit_steer_no_terminal(night: Night, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(night.root), "clone")
    root = tmp_path / "clone"
    git(root, "checkout", "-q", "-b", "forged", f"origin/{BRANCH}")
    (root / "cases/demo/toy/workspace/kernel.py").write_text(kernel(50.0))
    message = "x\n\nHillclimb-Run: demo/toy/night\nHillclimb-Candidate: ٣\nHillclimb-Idea: a\x1b[2J\x9bb\n"
    git(root, "commit", "-q", "-a", "-m", message)
    found = review(Night(root), "forged")
    assert found.n is None
    assert "\x1b" not in describe(found) and "\x9b" not in describe(found)


@pytest.mark.parametrize(
    ("revision", "against", "case", "complaint"),
    [
        ("nowhere", PARENT, None, "'nowhere' names no commit here"),
        ("main", PARENT, None, "main: is not a commit of a run"),
        ("main", PARENT, "demo/toy", "has no parent here; name the other side"),
        ("main", BASELINE, "demo/toy", "does not say where its run began"),
        (BRANCH, "nowhere", None, "'nowhere' names no commit here"),
        (BRANCH, PARENT, "demo/other", "case demo/other is not in that commit"),
    ],
)
def test_what_cannot_be_found_is_told(
    night: Night, revision: str, against: str, case: str | None, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        find_subject(Repository.open(night.root), revision, against, case)


@pytest.mark.clock
@pytest.mark.slow(15)
def test_a_real_judge_confirms_a_true_win(tmp_path: Path) -> None:
    folder = write_case(tmp_path, repeated(64))
    git(tmp_path, "init", "-q")
    for content in (repeated(64), HONEST):
        (folder / "workspace" / "kernel.py").write_text(content)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", "step")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hillclimb.agent.cli import main; main()",
            "review",
            "HEAD",
            "--case",
            "test/affine",
            "--json",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["finding"], found["claim"]["verdict"]) == ("confirmed", "")
    assert found["speedup"]["low"] > 2
