"""Holds a session to the wall budget of its run: what cannot end in time is not begun.

How long something takes is read off the run's own record. Before there is one, the baseline's measurement and the
case's settings tell it: a decision takes so many pairs at the least.
"""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.agent.climb.budget import BudgetLimits
from hillclimb.agent.machine.clock import Clock
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.screen.durations import describe_span
from hillclimb.harness.case.settings import Duel
from hillclimb.harness.errors import BudgetSpent
from hillclimb.harness.statistics.evidence import alpha_share, fewest_values

RECENT_VERDICTS = 5
"""Verdicts of a kind whose slowest says how long the next one may take."""


@dataclass(frozen=True)
class Timekeeper:
    """Of one session."""

    limits: BudgetLimits
    clock: Clock
    duel: Duel
    alpha: float
    """The run's whole error budget."""

    def seconds_left(self, ledger: Ledger) -> float:
        """Of the wall budget; never below zero."""
        return self.limits.remaining(ledger, self.clock.now()).seconds

    def require_screening(self, ledger: Ledger) -> None:
        """Raises BudgetSpent where the next candidate could not even be screened."""
        self._require(ledger, "screening a candidate", screening_seconds(ledger), _remeasured_seconds(ledger))

    def require_decision(self, ledger: Ledger) -> None:
        """Raises BudgetSpent where the candidate that passed its screening could not be decided on."""
        self._require(ledger, "a decision", self.decision_seconds(ledger), remeasurement_seconds(ledger))

    def has_time_for(self, ledger: Ledger, seconds: float) -> bool:
        """Whether that much is left."""
        return self.seconds_left(ledger) >= seconds

    def decision_seconds(self, ledger: Ledger) -> float:
        """Of one candidate that is decided on, about: the slowest of late, else what so many pairs take."""
        past = [c for c in ledger.candidates if c.confirming]
        if any(c.judged for c in past):
            return _slowest(past)
        needed = fewest_values(alpha_share(self.alpha, ledger.confirmations + 1)) + 2 * self.duel.report_pairs
        return needed * remeasurement_seconds(ledger) / self.duel.report_pairs

    def overrun(self, ledger: Ledger) -> BudgetSpent:
        """What a session ends with that is stopped in the middle of something."""
        return BudgetSpent(f"the budget of {describe_span(self.limits.seconds)} is used up{_undone(ledger)}")

    def _require(self, ledger: Ledger, what: str, seconds: float, ending: float) -> None:
        left = self.seconds_left(ledger)
        if left >= seconds + ending:
            return
        budget, after = describe_span(self.limits.seconds), f" and {describe_span(ending)} to close the run"
        raise BudgetSpent(
            f"the budget of {budget} has {describe_span(left)} left, and {what} takes about "
            f"{describe_span(seconds)}{after if ending else ''}{_undone(ledger)}"
        )


def screening_seconds(ledger: Ledger) -> float:
    """Of one candidate that is not decided on, about; 0 before the first."""
    return _slowest([c for c in ledger.candidates if not c.confirming])


def remeasurement_seconds(ledger: Ledger) -> float:
    """Of the measurement of the first commit against the last, about: the baseline's took as many pairs."""
    return ledger.baselined.seconds if ledger.baselined else 0.0


def profile_seconds(ledger: Ledger) -> float:
    """Of a look inside, about."""
    return ledger.profiles[-1].profile.seconds if ledger.profiles else 0.0


def is_remeasurement_due(ledger: Ledger) -> bool:
    """Whether the incumbent is a win that was not measured against the first commit since it was kept."""
    return bool(ledger.wins) and (ledger.remeasured is None or ledger.remeasured.commit != ledger.incumbent)


def _remeasured_seconds(ledger: Ledger) -> float:
    return remeasurement_seconds(ledger) if is_remeasurement_due(ledger) else 0.0


def _slowest(candidates: list[Candidate]) -> float:
    """Judge's seconds of the slowest of the latest few; 0 for none."""
    return max([c.judged.seconds for c in candidates if c.judged][-RECENT_VERDICTS:], default=0.0)


def _undone(ledger: Ledger) -> str:
    pending = ledger.pending
    return f"; candidate {pending.n} comes first when the run goes on" if pending else ""
