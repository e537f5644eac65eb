"""What a person or an agent brings becomes one candidate of a run, whatever state the run is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.request import Tools
from hillclimb.agent.evaluate.evaluation import EvaluationRequest, EvaluationResult
from hillclimb.agent.evaluate.submit import CandidateSubmission, ProgressRelay, submit_candidate
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.clock import SystemClock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.entries import FinishedEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.record.run import is_finished, open_run
from hillclimb.agent.screen.events import Event, ProgressEvent, TroubleEvent
from hillclimb.harness.errors import Interrupted, JudgeError, UsageError
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.records import Progress, Reason, Screening, Side, Watch
from tests.fakes.judge import PROVENANCE, SimulatedJudge
from tests.fakes.night import Night, git, make_repository
from tests.fakes.toy import KNOBS, TUNING, kernel

CASE = "cases/demo/toy"


@dataclass
class Desk:
    """A repository with the toy case, and somebody who works on it by hand."""

    root: Path
    judge: Callable[[], Judge] = SimulatedJudge
    events: list[Event] = field(default_factory=list)

    def land(
        self, tag: str | None = "night", what: str | None = None, knobs: tuple[str, ...] = (), **more: str
    ) -> EvaluationResult | None:
        question = EvaluationRequest(self.root / CASE, what, None, knobs)
        tools = Tools(emit=self.events.append, draw=lambda folder: "")
        return submit_candidate(
            CandidateSubmission(question, tag, **more), lambda case, log: self.judge(), tools
        )  # type: ignore[arg-type]

    def write(self, quality: float, name: str = "mine", flaw: str = "", **files: str) -> str:
        """A workspace folder of theirs, beside the repository."""
        folder = self.root.parent / name
        folder.mkdir(exist_ok=True)
        (folder / "docs").mkdir(exist_ok=True)
        (folder / "docs" / "notes.md").write_text("nothing yet\n")
        (folder / "knobs.yaml").write_text(KNOBS)
        (folder / "tuning.py").write_text(TUNING)
        (folder / "kernel.py").write_text(kernel(quality, flaw))
        for path, content in files.items():
            (folder / path.replace("_", ".")).write_text(content)
        return str(folder)

    @property
    def folder(self) -> Path:
        return self.root / "runs/demo/toy/night"

    @property
    def ledger(self) -> Ledger:
        return Ledger.read(self.folder / "ledger.jsonl")

    def show(self, revision: str) -> str:
        return git(self.root, "show", revision)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(make_repository(tmp_path / "repository"))


def test_a_win_lands_in_a_new_run_as_a_commit_with_its_record(desk: Desk) -> None:
    found = desk.land(what=desk.write(1.5), idea="unrolled by hand", family="unroll", author="agent")
    assert found is not None and found.kept
    assert (found.run, found.n, found.author, found.family) == ("demo/toy/night", 1, "agent", "unroll")
    assert found.files == ("kernel.py",)
    assert found.confirmation and found.confirmation.speedup and found.confirmation.speedup.estimate > 1.4
    assert desk.show(f"hillclimb/demo/toy/night:{CASE}/workspace/kernel.py") == kernel(1.5)
    assert (found.ref, found.provenance) == ("refs/heads/hillclimb/demo/toy/night", PROVENANCE)
    assert git(desk.root, "rev-parse", "hillclimb/demo/toy/night").strip() == found.commit
    repository = Repository.open(desk.root)
    [win] = find_runs(repository, "demo/toy")[0].wins
    assert (win.author, win.idea, win.trailers["Family"]) == ("agent", "unrolled by hand", "unroll")
    assert (desk.folder / "samples/1.json").is_file()
    assert "unrolled by hand" in (desk.folder / "results.tsv").read_text()
    assert git(desk.root, "status", "--porcelain") == ""


def test_a_persons_edit_carries_their_identity_and_an_agents_does_not(desk: Desk) -> None:
    git(desk.root, "config", "user.name", "Ada Smith")
    git(desk.root, "config", "user.email", "ada@example.org")
    mine, theirs = desk.land(what=desk.write(1.5)), desk.land(what=desk.write(1.9), author="agent")
    assert mine and theirs and mine.kept and theirs.kept
    form = "--format=%an <%ae>, %cn <%ce>"
    lab = "hillclimb <hillclimb@hillclimb.invalid>"
    assert (
        git(desk.root, "log", "-1", form, str(mine.commit)).strip() == f"Ada Smith <ada@example.org>, {lab}"
    )
    by_agent = f"hillclimb agent <agent@hillclimb.invalid>, {lab}"
    assert git(desk.root, "log", "-1", form, str(theirs.commit)).strip() == by_agent


def test_what_is_not_faster_is_rejected_with_a_ref_of_its_own(desk: Desk) -> None:
    found = desk.land(what=desk.write(0.5))
    assert found is not None and not found.kept
    assert (found.reason, found.idea, found.author) == (Reason.SLOWER, "edits to kernel.py", "human")
    assert found.ref == "refs/hillclimb/demo/toy/night/rejected/1"
    assert git(desk.root, "rev-parse", found.ref).strip() == found.commit
    assert found.confirmation is None and found.screening is not None


def test_what_may_not_be_touched_is_a_verdict_too(desk: Desk) -> None:
    found = desk.land(what=desk.write(2.0, notes_txt="mine"))
    assert found is not None
    assert (found.reason, found.commit) == (Reason.OUTSIDE_WORKSPACE, None)
    assert "notes.txt" in found.detail


def test_knobs_land_as_source_defaults(desk: Desk) -> None:
    found = desk.land(knobs=("TILE=32",))
    assert found is not None and found.kept
    assert (found.knobs, found.idea) == ({"TILE": "32"}, "TILE=32")
    assert "default: 32" in desk.show(f"{found.commit}:{CASE}/workspace/knobs.yaml")


def test_every_record_carries_the_six_webhook_fields(desk: Desk) -> None:
    found = desk.land(what=desk.write(1.5))
    assert found is not None
    fields = [name for name in found.model_dump() if name.startswith("webhook_")]
    assert len(fields) == 6
    assert found.webhook_status == "not configured"


def test_the_next_one_meets_the_new_incumbent(desk: Desk) -> None:
    first = desk.land(what=desk.write(1.5))
    second = desk.land(what=desk.write(1.2))
    third = desk.land(what=desk.write(2.0))
    assert first and second and third
    assert (second.reason, second.against) == (Reason.SLOWER, first.commit)
    assert third.kept and third.n == 3
    assert desk.ledger.cumulative == pytest.approx(2.0)


def test_the_run_stays_open_and_a_climb_goes_on_with_it(desk: Desk) -> None:
    desk.land(what=desk.write(1.5))
    assert not is_finished(desk.folder)
    night = Night(desk.root, tag=None, plan=("", "tune"))
    assert night.climb().reason == "the proposer has no ideas left"
    assert [c.proposal.author for c in desk.ledger.candidates] == ["human", "sweep"]
    assert len(desk.ledger.wins) == 2


@pytest.mark.parametrize(
    "budgets", [BudgetOverrides(candidates=2), BudgetOverrides(patience=1, candidates=9)]
)
def test_a_finished_run_takes_one_more_whatever_its_budgets(desk: Desk, budgets: BudgetOverrides) -> None:
    night = Night(desk.root, plan=("tune", "slower"), budgets=budgets)
    night.climb()
    assert is_finished(desk.folder)
    tuned = KNOBS.replace("default: 8,", "default: 32,")
    found = desk.land(what=desk.write(1.5, knobs_yaml=tuned))
    assert found is not None and found.kept and found.n == 3
    assert found.files == ("kernel.py",)
    last = desk.ledger.finished
    assert isinstance(last, FinishedEntry) and not last.interrupted
    assert is_finished(desk.folder)


def test_a_finished_run_is_finished_afterwards_for_the_reason_that_it_had(desk: Desk) -> None:
    Night(desk.root, plan=("improve",)).climb()
    before = desk.ledger.finished
    assert before and is_finished(desk.folder)
    found = desk.land(what=desk.write(3.0))
    assert found and found.kept
    assert is_finished(desk.folder)
    after = desk.ledger
    assert after.finished and after.finished.reason == before.reason
    assert after.finished.importances == before.importances
    assert after.remeasured and after.remeasured.commit == after.incumbent


def test_a_tree_that_is_the_incumbents_is_told_before_anything_runs(desk: Desk) -> None:
    with pytest.raises(UsageError, match="the working files and the run's incumbent have the same files"):
        desk.land()
    assert not desk.folder.exists()
    desk.land(what=desk.write(1.5))
    with pytest.raises(UsageError, match="the same files"):
        desk.land(what=desk.write(1.5))
    assert len(desk.ledger.spans) == 1


def test_the_same_tree_again_is_not_judged_again(desk: Desk) -> None:
    desk.land(what=desk.write(0.5))
    found = desk.land(what=desk.write(0.5))
    assert found is not None
    assert (found.reason, found.detail) == (
        Reason.DOES_NOT_APPLY,
        "the same tree as candidate 1, judged already",
    )


def test_what_is_no_text_is_told(desk: Desk) -> None:
    folder = Path(desk.write(1.5))
    (folder / "weights.py").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"'weights.py': is not UTF-8 text"):
        desk.land(what=str(folder))
    assert not desk.folder.exists()


def test_another_owner_is_named(desk: Desk) -> None:
    repository = Repository.open(desk.root)
    with (
        open_run(repository, "demo/toy", "night", Disk(), SystemClock()),
        pytest.raises(UsageError, match=r"is being climbed by process \d+ on "),
    ):
        desk.land(what=desk.write(1.5))


def test_against_and_commit_exclude_each_other(desk: Desk) -> None:
    question = EvaluationRequest(desk.root / CASE, None, "main")
    with pytest.raises(UsageError, match="--against main"):
        submit_candidate(
            CandidateSubmission(question, "t"),
            lambda case, log: SimulatedJudge(),
            Tools(emit=desk.events.append),
        )


class _Dying(SimulatedJudge):
    """Gates, and then the user presses Ctrl-C, or the machine is gone."""

    def __init__(self, end: Exception) -> None:
        super().__init__()
        self._end = end

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        raise self._end


def test_an_interrupted_one_is_judged_by_the_same_call_and_by_no_other(desk: Desk) -> None:
    desk.judge = lambda: _Dying(Interrupted("interrupted by SIGINT"))
    mine = desk.write(1.5)
    assert desk.land(what=mine) is None
    assert desk.ledger.pending is not None
    desk.judge = SimulatedJudge
    found = desk.land(what=mine)
    assert found is not None and found.kept and found.n == 1
    assert len(desk.ledger.candidates) == 1


def test_a_pending_candidate_of_somebody_elses_is_judged_first(desk: Desk) -> None:
    desk.judge = lambda: _Dying(Interrupted("interrupted by SIGINT"))
    desk.land(what=desk.write(1.2))
    desk.judge = SimulatedJudge
    found = desk.land(what=desk.write(1.5))
    assert found is not None and found.n == 2
    assert [c.judged.kept for c in desk.ledger.candidates if c.judged] == [True, True]


@pytest.mark.slow(12)
def test_a_failing_machine_is_no_verdict(desk: Desk) -> None:
    class Broken(_Dying):
        def gate(self, side: Side, watch: Watch):  # type: ignore[no-untyped-def]
            if Path(side.tree, "kernel.py").read_text() == kernel(1.5):
                raise JudgeError("gone")
            return super().gate(side, watch)

    desk.judge = lambda: _Dying(JudgeError("gone"))
    found = desk.land(what=desk.write(1.5))
    assert (
        found is not None and found.reason == Reason.BROKE_JUDGE
    )  # the incumbent passes, so it is the candidate


def test_lost_samples_leave_the_verdict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from hillclimb.agent.evaluate import submit

    monkeypatch.setattr(submit, "_samples", lambda path, n: submit.Samples(n=n))
    found = desk.land(what=desk.write(1.5))
    assert found is not None and found.kept and found.confirmation is None


def test_a_listener_hears_progress_and_trouble() -> None:
    heard: list[object] = []
    listener = ProgressRelay(heard.append, heard.append)
    listener.forward(ProgressEvent(time=1.0, n=1, stage="gate", done=1, of=2, speedup=None))
    listener.forward(TroubleEvent(time=1.0, message="no disk"))
    assert heard == [Progress(stage="gate", done=1, of=2), "no disk"]
