"""When a run ends: seconds and candidates over all its sessions, and patience since the last win."""

from __future__ import annotations

from dataclasses import dataclass

from agent.events import Left
from agent.ledger import Ledger
from harness.case.case import Budgets as CaseBudgets
from harness.errors import BudgetSpent, Plateau


@dataclass(frozen=True)
class Budgets:
    """What a run may use; None leaves it to case.yaml."""

    seconds: float | None = None
    candidates: int | None = None
    patience: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def over(self, case: CaseBudgets) -> Limits:
        """These budgets, the gaps filled in from case.yaml."""
        return Limits(
            seconds=case.seconds if self.seconds is None else self.seconds,
            candidates=case.candidates if self.candidates is None else self.candidates,
            patience=case.patience if self.patience is None else self.patience,
            tokens=case.tokens if self.tokens is None else self.tokens,
            cost=case.cost if self.cost is None else self.cost,
        )


@dataclass(frozen=True)
class Limits:
    """The budgets in force."""

    seconds: float
    candidates: int
    patience: int
    tokens: int | None = None
    cost: float | None = None

    def left(self, ledger: Ledger, now: float) -> Left:
        """What remains, never below zero."""
        seconds = max(0.0, self.seconds - elapsed(ledger, now))
        candidates = max(0, self.candidates - ledger.judged)
        tokens = None if self.tokens is None else max(0, self.tokens - ledger.tokens)
        cost = None if self.cost is None else max(0.0, self.cost - ledger.cost)
        shares = [seconds / self.seconds, candidates / self.candidates]
        if self.tokens is not None and tokens is not None:
            shares.append(tokens / self.tokens)
        if self.cost is not None and cost is not None:
            shares.append(cost / self.cost)
        return Left(
            seconds=seconds,
            candidates=candidates,
            patience=max(0, self.patience - ledger.since_win),
            share=min(shares),
            tokens=tokens,
            cost=cost,
        )

    def may_spend(self, ledger: Ledger, tokens: int, cost: float) -> bool:
        """Whether something would be left of both budgets of model calls if that much more were used."""
        holds_tokens = self.tokens is None or ledger.tokens + tokens < self.tokens
        return holds_tokens and (self.cost is None or ledger.cost + cost < self.cost)

    def check(self, ledger: Ledger, now: float) -> None:
        """Raises BudgetSpent or Plateau, with a sentence, when the climb should end."""
        left = self.left(ledger, now)
        if not left.candidates:
            raise BudgetSpent(f"the budget of {self.candidates} candidates is used up")
        if not left.seconds:
            raise BudgetSpent(f"the budget of {self.seconds:g} seconds is used up")
        if left.tokens == 0:
            raise BudgetSpent(f"the budget of {self.tokens} tokens is used up ({ledger.tokens} used)")
        if left.cost == 0:
            raise BudgetSpent(f"the budget of {self.cost:g} dollars is used up ({ledger.cost:.4f} spent)")
        if not left.patience:
            raise Plateau(f"{self.patience} candidates in a row without a win")


def elapsed(ledger: Ledger, now: float) -> float:
    """Seconds of work over all sessions: earlier ones up to their last line, this one up to `now`."""
    if not ledger.spans:
        return 0.0
    earlier = sum(span.last - span.start for span in ledger.spans[:-1])
    return earlier + max(0.0, now - ledger.spans[-1].start)
