from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Literal

import pytest

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.notify.notifier import SilentNotifier
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import Samples, WebhookState
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.events import EVENT, BaselinedEvent, JudgedEvent, OpenedEvent
from hillclimb.harness.errors import JudgeError, MachineError, SandboxError, StorageError, UsageError
from hillclimb.harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    Profile,
    Provenance,
    Reason,
    Screening,
    Side,
    Watch,
)
from hillclimb.harness.statistics.evidence import alpha_share
from tests.fakes.clock import SkippingClock
from tests.fakes.judge import PROVENANCE, SimulatedJudge
from tests.fakes.night import Night, git, make_repository
from tests.fakes.proposer import PlannedProposer
from tests.fakes.toy import kernel

VERDICTS = {
    "tune": None,
    "crash": Reason.CRASHED,
    "outside": Reason.OUTSIDE_WORKSPACE,
    "slower": Reason.SLOWER,
    "improve": None,
    "near": Reason.NO_PROVEN_GAIN,
    "trick": Reason.PROMOTION_FAILED,
    "ragged": Reason.GUARDRAIL,
    "unknown": Reason.BAD_KNOBS,
    "same": Reason.DOES_NOT_APPLY,
    "both": None,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def verdicts(ledger: Ledger) -> list[Reason | None]:
    return [candidate.judged.reason for candidate in ledger.candidates if candidate.judged]


def incumbents(ledger: Ledger) -> list[str]:
    assert ledger.opened
    return [ledger.opened.base, *(str(win.judged and win.judged.commit) for win in ledger.wins)]


def test_every_kind_of_proposal_gets_its_verdict(root: Path) -> None:
    night = Night(root)
    finished = night.climb()
    assert verdicts(night.ledger) == list(VERDICTS.values())
    assert (finished.candidates, finished.wins, finished.reason) == (11, 3, "the proposer has no ideas left")
    assert finished.cumulative and finished.cumulative.estimate == pytest.approx(1.4 * 1.25 * 1.25 * 1.05)
    assert night.troubles == []
    assert finished.importances == {"TILE": 0.75, "UNROLL": 0.25}
    assert night.ledger.finished
    assert night.ledger.finished.importances == finished.importances


def test_wins_are_commits_on_the_branch_with_the_knobs_as_defaults(root: Path) -> None:
    Night(root).climb()
    branch = "hillclimb/demo/toy/night"
    assert len(git(root, "rev-list", f"main..{branch}").split()) == 3
    assert git(root, "rev-parse", f"{branch}~3") == git(root, "rev-parse", "main")
    knobs = git(root, "show", f"{branch}:cases/demo/toy/workspace/knobs.yaml")
    assert "default: 32" in knobs and "choices: [1, 2, 4], default: 2" in knobs and "# what the toy" in knobs
    assert git(root, "show", f"{branch}:cases/demo/toy/workspace/kernel.py") == kernel(1.5625)
    assert git(root, "diff", "--name-only", "main", branch).split() == [
        "cases/demo/toy/workspace/docs/candidates.md",
        "cases/demo/toy/workspace/docs/more.md",
        "cases/demo/toy/workspace/docs/notes.md",
        "cases/demo/toy/workspace/kernel.py",
        "cases/demo/toy/workspace/knobs.yaml",
    ]


def test_the_baseline_the_last_win_and_what_a_proposer_asks_to_see_are_profiled(root: Path) -> None:
    class Sweeping(PlannedProposer):
        def reads_profile(self, ledger: Ledger) -> bool:
            return False

    night = Night(root)
    night.climb()
    assert [found.commit for found in night.ledger.profiles] == incumbents(night.ledger)

    other = Night(make_repository(root.parent / "other"), proposer=Sweeping())
    other.climb()
    assert len(other.ledger.wins) == 3
    first, *_, last = incumbents(other.ledger)
    assert [found.commit for found in other.ledger.profiles] == [first, last]


def test_a_baseline_that_cannot_be_profiled_ends_no_climb(root: Path) -> None:
    class Blind(SimulatedJudge):
        def profile(self, side: Side, watch: Watch) -> Profile:
            raise JudgeError("the profiler killed the judge")

    night = Night(root, judge=Blind)
    assert night.climb().wins == 3
    details = {found.profile.detail.partition(":")[0] for found in night.ledger.profiles}
    assert details == {"not profiled"}
    assert any("the incumbent was not profiled: " in trouble for trouble in night.troubles)


def test_a_run_that_cannot_be_measured_from_first_to_last_is_closed_all_the_same(root: Path) -> None:
    class Tired(SimulatedJudge):
        def compare(
            self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch
        ) -> Comparison:
            if stage == "cumulative":
                raise JudgeError("the GPU fell off the bus")
            return super().compare(first, last, stage, watch)

    night = Night(root, judge=Tired)
    finished = night.climb()
    assert (finished.wins, finished.interrupted) == (3, False)
    assert night.ledger.finished is not None and night.ledger.remeasured is None
    assert any("were not measured against each other: " in trouble for trouble in night.troubles)


def test_a_run_whose_last_win_cannot_be_profiled_is_closed_all_the_same(root: Path) -> None:
    class Sweeping(PlannedProposer):
        def reads_profile(self, ledger: Ledger) -> bool:
            return False

    class Blind(SimulatedJudge):
        def profile(self, side: Side, watch: Watch) -> Profile:
            if (root / "runs/demo/toy/night/samples/11.json").exists():
                raise MachineError("the profiler is gone")
            return super().profile(side, watch)

    night = Night(root, judge=Blind, proposer=Sweeping())
    finished = night.climb()
    assert (finished.wins, finished.interrupted) == (3, False)
    assert night.ledger.finished is not None
    assert [bool(found.profile.problems) for found in night.ledger.profiles] == [True, False]
    assert any("the incumbent was not profiled: " in trouble for trouble in night.troubles)


def test_rejected_candidates_are_kept_as_refs(root: Path) -> None:
    Night(root).climb()
    refs = git(root, "for-each-ref", "--format=%(refname)", "refs/hillclimb").split()
    numbers = sorted(int(ref.removeprefix("refs/hillclimb/demo/toy/night/rejected/")) for ref in refs)
    assert numbers == [2, 4, 6, 7, 8, 10]
    message = git(root, "log", "-1", "--format=%B", "refs/hillclimb/demo/toy/night/rejected/8")
    assert "Hillclimb-Verdict: rejected\nHillclimb-Reason: guardrail\n" in message


def test_alpha_is_spent_over_confirmations(root: Path) -> None:
    night = Night(root)
    night.climb()
    shares = [c.confirming for c in night.ledger.candidates if c.confirming]
    assert [share.k for share in shares] == [1, 2, 3, 4, 5, 6]
    assert [share.alpha for share in shares] == [alpha_share(0.01, k) for k in range(1, 7)]
    assert sum(alpha_share(0.01, k) for k in range(1, 100_000)) == pytest.approx(0.01, rel=1e-4)


def test_samples_hold_what_the_judge_said(root: Path) -> None:
    night = Night(root)
    night.climb()
    samples = Samples.model_validate_json((night.folder / "samples/1.json").read_bytes())
    assert samples.screening and samples.confirmation and len(samples.confirmation.pairs) == 3
    assert {"noise.json", "remeasured.json"} <= {path.name for path in (night.folder / "samples").iterdir()}


def test_events_tell_the_story(root: Path) -> None:
    night = Night(root)
    finished = night.climb()
    kinds = [event.event for event in night.events if event.event != "progress"]
    assert kinds == ["opened", "baselined", *["proposed", "judged"] * 11, "finished"]
    assert night.events[-1] == finished
    for event in night.events:
        assert EVENT.validate_json(event.model_dump_json()) == event
    last = [event for event in night.events if isinstance(event, JudgedEvent)][-1]
    assert (last.candidates, last.wins, last.left.candidates, last.left.patience) == (11, 3, 39, 50)


def test_only_the_trees_still_needed_stay(root: Path) -> None:
    night = Night(root)
    night.climb()
    assert len(list((night.folder / "trees").iterdir())) == 3


def test_a_finished_run_goes_on_with_a_larger_budget(root: Path) -> None:
    night = Night(root, budgets=BudgetOverrides(candidates=4))
    assert night.climb().reason == "the budget of 4 candidates is used up"
    longer = Night(root)
    finished = longer.climb()
    assert finished.candidates == 11
    opened = next(event for event in longer.events if isinstance(event, OpenedEvent))
    assert (opened.resumed, opened.candidates, opened.best) == (True, 4, (1.4,))
    assert not [event for event in longer.events if isinstance(event, BaselinedEvent)]
    whole = make_repository(root.parent / "whole")
    Night(whole).climb()
    assert verdicts(longer.ledger) == verdicts(Night(whole).ledger)


def test_climbing_a_finished_run_again_changes_nothing(root: Path) -> None:
    night = Night(root)
    night.climb()
    before = [
        line for line in (night.folder / "ledger.jsonl").read_bytes().splitlines() if b"session" not in line
    ]
    night.climb()
    after = [
        line for line in (night.folder / "ledger.jsonl").read_bytes().splitlines() if b"session" not in line
    ]
    assert after == before


def test_patience_ends_the_climb(root: Path) -> None:
    night = Night(
        root, plan=("tune", "slower", "crash", "crash", "crash"), budgets=BudgetOverrides(patience=2)
    )
    assert night.climb().reason == "2 candidates in a row without a win"


class Mortal(SimulatedJudge):
    """Dies at its first screening."""

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        raise JudgeError("the judge was killed")


def test_a_judge_that_dies_is_replaced_and_nothing_is_held_against_the_candidate(root: Path) -> None:
    judges = iter([Mortal(), Mortal(), Mortal(), SimulatedJudge()])
    night = Night(root, judge=lambda: next(judges))
    assert night.climb().wins == 3
    assert len(night.troubles) == 3 and "the judge was killed" in night.troubles[0]


class Doomed(Mortal):
    """Dies whatever it is shown, as on a machine that is at fault."""

    def gate(self, side: Side, watch: Watch) -> GateReport:
        raise JudgeError("the judge was killed")


def test_judges_that_die_over_the_incumbent_too_end_the_climb_with_no_verdict(root: Path) -> None:
    judges = chain([Mortal()], repeat(Doomed()))
    night = Night(root, judge=lambda: next(judges))
    with pytest.raises(JudgeError, match=r"4 times in a row.*the judge was killed"):
        night.climb()
    assert night.ledger.pending and night.ledger.pending.judged is None
    night.judge = SimulatedJudge
    assert night.climb().candidates == 11


def test_a_sandbox_that_fails_is_not_tried_again(root: Path) -> None:
    def refuse() -> SimulatedJudge:
        raise SandboxError("nothing holds")

    night = Night(root, judge=refuse)
    with pytest.raises(SandboxError, match="nothing holds"):
        night.climb()
    assert night.troubles == []


@pytest.mark.parametrize(
    "error", [SandboxError("fork was not ready after 20 s"), JudgeError("CUDA: out of memory")]
)
def test_a_hiccup_of_the_machine_is_no_verdict(root: Path, error: MachineError) -> None:
    """Four judges in a row fail in the first screening, and then the machine is well again."""
    left = [4]

    class Hiccuping(SimulatedJudge):
        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            if left[0]:
                left[0] -= 1
                raise error
            return super().screen(candidate, incumbent, watch)

    night = Night(root, judge=Hiccuping)
    assert night.climb().wins == 3
    assert Reason.BROKE_JUDGE not in verdicts(night.ledger)


@pytest.mark.parametrize("name", ["contract", "benchmarks", "harness"])
def test_other_rules_are_refused_on_resume(root: Path, name: str) -> None:
    Night(root, budgets=BudgetOverrides(candidates=2)).climb()
    other = PROVENANCE.model_copy(update={name: "d" * 64})
    with pytest.raises(UsageError, match=rf"the {name} changed since run night began.*--tag"):
        Night(root, judge=lambda: SimulatedJudge(other)).climb()


def test_a_fixed_file_that_the_user_changed_is_named_on_resume(root: Path) -> None:
    night = Night(root, budgets=BudgetOverrides(candidates=2))
    night.climb()
    (night.case / "contract.py").write_text("# laxer\n")
    with pytest.raises(UsageError, match=r"contract\.py is not what it was.*--tag"):
        night.climb()


def test_the_users_workspace_may_change_meanwhile(root: Path) -> None:
    night = Night(root, budgets=BudgetOverrides(candidates=2))
    night.climb()
    (night.case / "workspace/kernel.py").write_text(kernel(0.1))
    night.budgets = BudgetOverrides()
    assert night.climb().wins == 3
    assert (night.case / "workspace/kernel.py").read_text() == kernel(0.1)


def test_another_seed_is_refused_on_resume(root: Path) -> None:
    Night(root, seed=1, budgets=BudgetOverrides(candidates=1)).climb()
    with pytest.raises(UsageError, match="has seed 1, not 2"):
        Night(root, seed=2).climb()


def test_a_baseline_that_fails_the_gate_is_said_and_leaves_the_tag_free(root: Path) -> None:
    night = Night(root)
    (night.case / "workspace/kernel.py").write_text(kernel(1.0, "wrong_result"))
    with pytest.raises(UsageError, match=r"baseline of demo/toy does not pass the gate \(wrong_result"):
        night.climb()
    (night.case / "workspace/kernel.py").write_text(kernel(1.0))
    assert night.climb().wins == 3


def test_a_branch_that_something_else_moved_is_an_error(root: Path) -> None:
    night = Night(root, budgets=BudgetOverrides(candidates=1))
    night.climb()
    git(root, "update-ref", "refs/heads/hillclimb/demo/toy/night", "main")
    night.budgets = BudgetOverrides()
    with pytest.raises(UsageError, match="something else moved it; put it back with 'git update-ref"):
        night.climb()


def test_a_branch_that_something_else_moves_while_a_win_is_judged_is_not_overwritten(root: Path) -> None:
    ref = "refs/heads/hillclimb/demo/toy/night"

    class Meddled(SimulatedJudge):
        def confirm(self, *asked: Any) -> Confirmation:
            git(root, "commit", "--quiet", "--allow-empty", "--message", "somebody else's")
            git(root, "update-ref", ref, "main")
            return super().confirm(*asked)

    with pytest.raises(UsageError, match=r"cannot be moved to .* something else uses or moved that ref"):
        Night(root, judge=Meddled, plan=("improve",)).climb()
    assert git(root, "rev-parse", ref) == git(root, "rev-parse", "main")


def test_a_branch_without_its_ledger_is_not_taken_over(root: Path) -> None:
    git(root, "branch", "hillclimb/demo/toy/night")
    with pytest.raises(UsageError, match="has no ledger of it; choose another --tag"):
        Night(root).climb()


def test_a_branch_that_is_checked_out_is_not_moved_under_the_user(root: Path) -> None:
    night = Night(root, budgets=BudgetOverrides(candidates=1))
    night.climb()
    git(root, "checkout", "--quiet", "hillclimb/demo/toy/night")
    night.budgets = BudgetOverrides()
    with pytest.raises(UsageError, match=r"is checked out at .*checkout --detach"):
        night.climb()
    git(root, "checkout", "--quiet", "--detach")
    assert night.climb().wins == 3


def test_a_second_process_is_told_the_owner(root: Path) -> None:
    class Nested(SimulatedJudge):
        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            with pytest.raises(
                UsageError, match=rf"is being climbed by process {os.getpid()} on .* since 20"
            ):
                Night(root).climb()
            return super().screen(candidate, incumbent, watch)

    assert Night(root, judge=Nested, plan=("tune",)).climb().wins == 1


class Slow(SimulatedJudge):
    """Hangs in its first screening until a signal ends it."""

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        time.sleep(30)
        raise AssertionError("no signal came")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_cleanly_and_the_run_goes_on_later(root: Path, number: signal.Signals) -> None:
    def own(number: int, frame: object) -> None:
        """Whoever calls a climb may have a handler; and tests under nohup ignore SIGHUP."""

    slow, before = Slow(), signal.signal(number, own)
    night = Night(root, judge=lambda: slow)
    threading.Timer(0.7, lambda: os.kill(os.getpid(), number)).start()
    try:
        finished = night.climb()
        assert signal.getsignal(number) is own
    finally:
        signal.signal(number, before)
    assert finished.interrupted and number.name in finished.reason and slow.closed
    ended = night.ledger.finished
    assert ended and ended.interrupted
    night.judge = SimulatedJudge
    assert night.climb().wins == 3


def test_a_hangup_that_is_ignored_stays_ignored(root: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    class HungUp(SimulatedJudge):
        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            os.kill(os.getpid(), signal.SIGHUP)
            return super().screen(candidate, incumbent, watch)

    try:
        assert Night(root, judge=HungUp).climb().wins == 3
    finally:
        signal.signal(signal.SIGHUP, before)


class Stubborn:
    """Proposes the same thing for ever."""

    def propose(self, ledger: Ledger) -> Proposal:
        edit = Edit(path="kernel.py", content=kernel(0.5))
        return Proposal(author="llm", idea="again", edits=(edit,))

    def importances(self, ledger: Ledger) -> dict[str, float]:
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""


def test_the_same_again_is_judged_once_and_ends_with_the_patience(root: Path) -> None:
    night = Night(root, proposer=Stubborn(), budgets=BudgetOverrides(patience=4))
    assert night.climb().reason == "4 candidates in a row without a win"
    reasons = verdicts(night.ledger)
    assert reasons == [Reason.SLOWER, *[Reason.DOES_NOT_APPLY] * 3]


class Harmless(Stubborn):
    """Proposes what changes nothing that runs, one kind after the other."""

    KINDS = (
        Proposal(
            author="llm", idea="say more", edits=(Edit(path="kernel.py", content=kernel(1.0) + "# !\n"),)
        ),
        Proposal(author="llm", idea="a spare", edits=(Edit(path="spare.py", content="X = 1\n"),)),
        Proposal(author="llm", idea="words", edits=(Edit(path="docs/notes.md", content="more\n"),)),
        Proposal(author="sweep", idea="UNROLL=2", knobs={"UNROLL": 2}),
        Proposal(author="sweep", idea="TILE=16", knobs={"TILE": 16}),
    )

    def propose(self, ledger: Ledger) -> Proposal:
        return self.KINDS[len(ledger.candidates)]


def test_what_changes_nothing_that_runs_is_not_duelled(root: Path) -> None:
    tuning = root / "cases/demo/toy/workspace/tuning.py"
    tuning.write_text("import os\n\nTILE, TRICK = os.environ.get('TILE'), os.environ.get('TRICK')\n")
    git(root, "commit", "-qam", "UNROLL is read no more")
    screened: list[dict[str, str]] = []

    class Watched(SimulatedJudge):
        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            screened.append(dict(candidate.knobs))
            return super().screen(candidate, incumbent, watch)

    night = Night(root, proposer=Harmless(), judge=Watched, budgets=BudgetOverrides(candidates=5))
    night.climb()
    assert screened == [{"TILE": "16"}]
    told = [candidate.judged for candidate in night.ledger.candidates[:4]]
    assert [judged and judged.reason for judged in told] == [Reason.DOES_NOT_APPLY] * 4
    assert [judged.detail.removeprefix("nothing that runs would change: ") for judged in told if judged] == [
        "kernel.py differs in comments or formatting only",
        "no file imports or names spare.py",
        "it changes nothing but docs/",
        "no file reads the knob UNROLL",
    ]


def test_the_controller_stays_light(root: Path) -> None:
    """Neither torch nor anything else heavy, in the process that runs all night."""
    program = (
        "import sys, hillclimb.agent.climb.climb\n"
        "print([name for name in ('torch', 'numba', 'triton', 'matplotlib', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_a_sandbox_only_knobs_are_tried(root: Path) -> None:
    class Unfenced(SimulatedJudge):
        def describe(self) -> Provenance:
            return PROVENANCE.model_copy(update={"sandbox": "none"})

    night = Night(root, judge=Unfenced)
    night.climb()
    for candidate in night.ledger.candidates:
        assert candidate.judged
        assert (candidate.judged.reason is Reason.POLICY) == bool(candidate.proposal.edits)


def test_a_commit_names_the_judge_that_decided_though_it_is_dead(root: Path) -> None:
    """Each judge dies of the first question after a win; its successor has another seed."""
    deciders: list[str] = []

    class Fleeting(SimulatedJudge):
        born = 0

        def __init__(self) -> None:
            Fleeting.born += 1
            super().__init__(PROVENANCE.model_copy(update={"seed_commitment": f"{Fleeting.born:064x}"}))
            self.is_dead = False

        def _live(self) -> None:
            if self.is_dead:
                raise JudgeError("it is gone")

        def describe(self) -> Provenance:
            self._live()
            return super().describe()

        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            self._live()
            return super().screen(candidate, incumbent, watch)

        def confirm(
            self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
        ) -> Confirmation:
            self._live()
            found = super().confirm(candidate, incumbent, baseline, alpha, watch)
            if found.reason is None:
                self.is_dead = True
                deciders.append(self._provenance.seed_commitment)
            return found

    night = Night(root, judge=Fleeting)
    assert night.climb().wins == 3
    trailer = "--format=%(trailers:key=Hillclimb-Seed-Commitment,valueonly)"
    commits = [str(candidate.judged.commit) for candidate in night.ledger.wins if candidate.judged]
    assert [git(root, "log", "-1", trailer, commit).strip() for commit in commits] == deciders
    assert len(set(deciders)) == 3


@pytest.mark.parametrize("name", ["hillclimb", "hillclimb/demo", "hillclimb/demo/toy/night/mine"])
def test_a_branch_in_the_way_is_named_before_anything_is_recorded(root: Path, name: str) -> None:
    git(root, "branch", name)
    with pytest.raises(UsageError, match=f"branch {name} is in the way .* 'git branch -m {name} "):
        Night(root).climb()
    git(root, "branch", "-D", name)
    assert Night(root).climb().wins == 3


@pytest.mark.parametrize(
    ("slip", "told"),
    [("nonsense: 1", "nonsense"), ("sweep: {first: [{TIEL: 4}]}", r"sweep\.first\.0: TIEL is not a knob")],
)
def test_a_case_that_is_wrong_leaves_no_run_behind(root: Path, slip: str, told: str) -> None:
    path = root / "cases/demo/toy/case.yaml"
    path.write_text(f"{path.read_text()}\n{slip}\n")
    with pytest.raises(UsageError, match=told):
        Night(root).climb()
    assert not (root / "runs").exists()


def test_a_large_seed_is_shown_in_full(root: Path) -> None:
    Night(root, seed=123456789).climb()
    with pytest.raises(UsageError, match="has seed 123456789, not 123456780"):
        Night(root, seed=123456780).climb()


def test_a_case_without_a_family_is_refused(root: Path) -> None:
    git(root, "mv", "cases/demo/toy", "toy")
    night = Night(root)
    with pytest.raises(UsageError, match="two folders below the repository's root"):
        climb(
            ClimbRequest(root / "toy"),
            lambda case, log: night.judge(),
            lambda background: PlannedProposer(background.seed, ()),
            Tools(night.events.append),
        )


class Squeamish(SimulatedJudge):
    """Dies whenever it is shown one particular candidate."""

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        if "TILE" in candidate.knobs:
            raise JudgeError("the judge was killed")
        return super().screen(candidate, incumbent, watch)


def test_a_candidate_that_breaks_every_judge_is_rejected_and_the_run_goes_on(root: Path) -> None:
    clock = SkippingClock()
    night = Night(root, judge=Squeamish, clock=clock)
    night.climb()
    assert clock.slept == [1.0, 3.0, 9.0] * 2
    assert verdicts(night.ledger)[0] is Reason.BROKE_JUDGE
    assert len(night.ledger.wins) == 2
    assert len(verdicts(night.ledger)) == len(VERDICTS)


def test_runs_may_lie_on_another_disk(root: Path, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (root / "runs").symlink_to(tmp_path / "large disk")
    assert Night(root).climb().wins == 3


@pytest.mark.slow(3)
def test_trouble_that_the_runs_disk_does_not_have_is_not_waited_for_without_end(root: Path) -> None:
    class Cramped(SimulatedJudge):
        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            raise StorageError("/tmp: no space left on device")

    clock = SkippingClock()
    with pytest.raises(MachineError, match=r"no space left on device; it came back 60 times"):
        Night(root, judge=Cramped, clock=clock).climb()
    assert 1800 < sum(clock.slept) < 7200


def test_what_became_of_posts_is_recorded_even_where_an_error_ends_the_night(root: Path) -> None:
    sent: list[tuple[int, WebhookState]] = []

    class Posting(SilentNotifier):
        def outcomes(self) -> list[tuple[int, WebhookState]]:
            told = sent[:]
            sent.clear()
            return told

    class Dying(SimulatedJudge):
        """Is gone for good after the first win, whose post has just come to its end."""

        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            if (root / "runs/demo/toy/night/samples/1.json").exists():
                sent[:] = [(1, WebhookState(webhook_sent=True, webhook_status="sent"))]
                raise JudgeError("the GPU fell off the bus")
            return super().screen(candidate, incumbent, watch)

        def gate(self, side: Side, watch: Watch) -> GateReport:
            if sent:
                raise JudgeError("the GPU fell off the bus")
            return super().gate(side, watch)

    night = Night(root, judge=Dying, notifier=Posting())
    with pytest.raises(JudgeError):
        night.climb()
    assert '"kind":"notified"' in (night.folder / "ledger.jsonl").read_text()
    assert night.ledger.candidates[0].webhook.webhook_status == "sent"
