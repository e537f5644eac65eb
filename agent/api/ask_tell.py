"""Climbs with a proposer of one's own: a class with `ask` and `tell`.

class Doubler:
    def ask(self, incumbent):
        return Proposal(author="agent", idea="twice the tile", knobs={"TILE": 64})

    def tell(self, candidate):
        print(candidate.n, candidate.verdict.kept)

run = climb("demo/cpu_matmul", Doubler(), tag="mine", candidates=10)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hillclimb.agent.api.runs import CandidateRecord, RunRecord, read_run, to_record
from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb as climb_case
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.events import Event
from hillclimb.harness.case.case import find_case
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.knobs.knobs import KNOBS_FILE, KnobValue, defaults, parse_knobs


@dataclass(frozen=True)
class Incumbent:
    """What a proposal is made against: the best commit so far."""

    commit: str
    files: Mapping[str, str]
    """Text files of the workspace, by path relative to workspace/."""
    knobs: Mapping[str, KnobValue]
    """Each knob with its default in the source."""


class AskTell(Protocol):
    """Anything that has ideas and wants to hear what became of them."""

    def ask(self, incumbent: Incumbent) -> Proposal | None:
        """The next proposal; None when out of ideas, which ends the climb."""

    def tell(self, candidate: CandidateRecord) -> None:
        """A candidate has its verdict. Called once for each, in order; after a restart for all of the run again."""


def climb(
    case: str | Path,
    proposer: AskTell,
    *,
    tag: str | None = None,
    seconds: float | None = None,
    candidates: int | None = None,
    patience: int | None = None,
    until: float | None = None,
    seed: int | None = None,
    alpha: float | None = None,
    trust_workspace: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> RunRecord:
    """Climb a case with this proposer until a budget, a target, the patience or Ctrl-C ends it; the run as it is then.

    `until` is the speedup over the baseline that is enough. The same call with the same tag goes on with the run.
    `alpha` is the largest probability of even one false win in a new run. With `trust_workspace` knob values are tried
    without a sandbox, where none works here. Budgets that are None are the case's own.

    Raises UsageError for what a person must mend, MachineError where the machine keeps failing.
    """
    request = ClimbRequest(
        case=find_case(str(case)),
        tag=tag,
        seed=seed,
        alpha=alpha,
        budgets=BudgetOverrides(seconds=seconds, candidates=candidates, patience=patience, until=until),
        sources=type(proposer).__name__,
    )
    finished = climb_case(
        request,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
        lambda background: AskTellAdapter(proposer, background),
        Tools(emit=on_event or _ignore),
    )
    return read_run(finished.folder)


class AskTellAdapter:
    """Implements agent.proposer.Proposer over an AskTell."""

    def __init__(self, proposer: AskTell, background: ProposerContext) -> None:
        self._proposer, self._files = proposer, background.files
        self._told = 0

    def propose(self, ledger: Ledger) -> Proposal | None:
        self._tell_verdicts(ledger)
        files = self._files(ledger.incumbent)
        knobs = parse_knobs(files[KNOBS_FILE], Path(KNOBS_FILE)) if KNOBS_FILE in files else {}
        return self._proposer.ask(Incumbent(ledger.incumbent, files, defaults(knobs)))

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """Not known of a proposer that cannot be looked into."""
        return {}

    def finish(self, ledger: Ledger) -> None:
        self._tell_verdicts(ledger)

    def _tell_verdicts(self, ledger: Ledger) -> None:
        for candidate in ledger.candidates[self._told :]:
            if candidate.judged is None or not candidate.settled:
                return
            self._told = candidate.n
            self._proposer.tell(to_record(candidate))


def _ignore(event: Event) -> None:
    """Nobody watches."""
