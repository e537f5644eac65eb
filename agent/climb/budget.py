"""When a run ends: seconds and candidates over all its sessions, patience since the last win, and a target."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hillclimb.agent.record.entries import BudgetsInForce
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.durations import describe_span
from hillclimb.agent.screen.events import RemainingBudget
from hillclimb.agent.screen.scoreboard import show_money
from hillclimb.harness.case.settings import Budgets as CaseBudgets
from hillclimb.harness.errors import BudgetSpent, Plateau, TargetReached
from hillclimb.harness.wording import count

UNREACHABLE_LIMIT = 10**12
"""More of anything than a run can use."""


@dataclass(frozen=True)
class BudgetOverrides:
    """What a run may use; None leaves it to case.yaml."""

    seconds: float | None = None
    candidates: int | None = None
    patience: int | None = None
    tokens: int | None = None
    cost: float | None = None
    until: float | None = None
    """The speedup over the baseline that is enough; no case has one."""

    def resolve(self, case: CaseBudgets) -> BudgetLimits:
        """These budgets, the gaps filled in from case.yaml."""
        return BudgetLimits(
            seconds=case.seconds if self.seconds is None else self.seconds,
            candidates=case.candidates if self.candidates is None else self.candidates,
            patience=case.patience if self.patience is None else self.patience,
            tokens=case.tokens if self.tokens is None else self.tokens,
            cost=case.cost if self.cost is None else self.cost,
            until=self.until,
        )


NO_LIMIT = BudgetOverrides(*[UNREACHABLE_LIMIT] * 5)
"""For what somebody asked for by itself, which no budget of the run stops."""


@dataclass(frozen=True)
class BudgetLimits:
    """The budgets in force."""

    seconds: float
    candidates: int
    patience: int
    tokens: int | None = None
    cost: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, recorded: BudgetsInForce) -> BudgetLimits:
        """Those of a session, as its line in the ledger has them."""
        return cls(**dict(recorded))

    @property
    def recorded(self) -> BudgetsInForce | None:
        """For the session's line in the ledger; None where there is no limit."""
        return None if self.seconds >= UNREACHABLE_LIMIT else BudgetsInForce(**asdict(self))

    def remaining(self, ledger: Ledger, now: float) -> RemainingBudget:
        """What remains, never below zero."""
        seconds = max(0.0, self.seconds - elapsed_seconds(ledger, now))
        candidates = max(0, self.candidates - ledger.judged)
        tokens = None if self.tokens is None else max(0, self.tokens - ledger.tokens)
        cost = None if self.cost is None else max(0.0, self.cost - ledger.cost)
        shares = [seconds / self.seconds, candidates / max(1, self.candidates)]
        if self.tokens is not None and tokens is not None:
            shares.append(tokens / self.tokens)
        if self.cost is not None and cost is not None:
            shares.append(cost / self.cost)
        return RemainingBudget(
            seconds=seconds,
            candidates=candidates,
            patience=max(0, self.patience - ledger.candidates_since_win),
            share=min(shares),
            tokens=tokens,
            cost=cost,
        )

    def may_spend(self, ledger: Ledger, tokens: int, cost: float) -> bool:
        """Whether something would be left of both budgets of model calls if that much more were used."""
        holds_tokens = self.tokens is None or ledger.tokens + tokens < self.tokens
        return holds_tokens and (self.cost is None or ledger.cost + cost < self.cost)

    def check(self, ledger: Ledger, now: float) -> None:
        """Raises TargetReached, BudgetSpent or Plateau, with a sentence, when the climb should end."""
        self.check_target(ledger)
        left = self.remaining(ledger, now)
        if not left.candidates:
            raise BudgetSpent(f"the budget of {count(self.candidates, 'candidate')} is used up")
        if not left.seconds:
            raise BudgetSpent(f"the budget of {describe_span(self.seconds)} is used up")
        if left.tokens == 0:
            used = f"{ledger.tokens} used"
            raise BudgetSpent(f"the budget of {count(self.tokens or 0, 'token')} is used up ({used})")
        if left.cost == 0:
            spent = f"{show_money(ledger.cost)} spent"
            raise BudgetSpent(f"the budget of {show_money(self.cost or 0.0)} is used up ({spent})")
        if not left.patience:
            raise Plateau(f"{count(self.patience, 'candidate')} in a row without a win")

    def check_target(self, ledger: Ledger) -> None:
        """Raises TargetReached where the whole interval of the speedup over the baseline is at the target or above."""
        reached = ledger.cumulative_interval
        if self.until is not None and reached is not None and reached.low >= self.until:
            raise TargetReached(f"the target of {self.until:g}x is reached: {reached} over the baseline")


def elapsed_seconds(ledger: Ledger, now: float) -> float:
    """Seconds of work over all sessions: earlier ones up to their last line, this one up to `now`."""
    if not ledger.spans:
        return 0.0
    earlier = sum(span.last - span.start for span in ledger.spans[:-1])
    return earlier + max(0.0, now - ledger.spans[-1].start)
