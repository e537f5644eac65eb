from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.climb.budget import BudgetLimits, BudgetOverrides, elapsed_seconds
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.entries import CalledEntry, SessionEntry, SettledEntry, TokenUsage
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.case.settings import Budgets as CaseBudgets
from hillclimb.harness.errors import BudgetSpent, Plateau
from tests.agent.record.test_ledger import OPENED, judged, proposed

CALLED = CalledEntry(
    k=1,
    time=9002.0,
    seconds=1.0,
    model="m",
    incumbent="c",
    outcome="unusable",
    usage=TokenUsage(prompt=900, completion=100),
    cost=0.25,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two sessions: 1 second of work up to a win, a night's rest, 2 seconds of work up to a rejection."""
    ledger = Ledger.open(tmp_path / "ledger.jsonl", Disk())
    ledger.append(OPENED)
    ledger.append(SessionEntry(time=100.5, pid=1, host="h"))
    for entry in (proposed(1), judged(1, kept=True), SettledEntry(n=1)):
        ledger.append(entry)
    ledger.append(SessionEntry(time=9000.0, pid=2, host="h"))
    late = {"time": 9002.0}
    for entry in (
        proposed(2).model_copy(update=late),
        judged(2, kept=False).model_copy(update=late),
        SettledEntry(n=2),
    ):
        ledger.append(entry)
    return ledger


def test_only_work_counts(ledger: Ledger) -> None:
    assert elapsed_seconds(ledger, 9003.0) == pytest.approx(1.0 + 3.0)


def test_a_clock_set_back_takes_nothing_back(ledger: Ledger) -> None:
    assert elapsed_seconds(ledger, 50.0) == pytest.approx(1.0)


def test_an_empty_ledger_has_spent_nothing(tmp_path: Path) -> None:
    assert elapsed_seconds(Ledger.read(tmp_path / "none"), 9003.0) == 0.0


def test_a_budget_of_no_candidates_is_used_up(tmp_path: Path) -> None:
    limits = BudgetLimits(seconds=10.0, candidates=0, patience=5)
    assert limits.remaining(Ledger.read(tmp_path / "none"), 0.0).share == 0.0
    with pytest.raises(BudgetSpent, match="0 candidates"):
        limits.check(Ledger.read(tmp_path / "none"), 0.0)


def test_what_is_left(ledger: Ledger) -> None:
    left = BudgetLimits(seconds=8.0, candidates=10, patience=3).remaining(ledger, 9003.0)
    assert (left.candidates, left.patience) == (8, 2)
    assert (left.seconds, left.share) == pytest.approx((4.0, 0.5))


@pytest.mark.parametrize(
    ("limits", "stop", "said"),
    [
        (BudgetLimits(4.0, 10, 10), BudgetSpent, "the budget of 4 s is used up"),
        (BudgetLimits(99.0, 2, 10), BudgetSpent, "the budget of 2 candidates is used up"),
        (BudgetLimits(99.0, 10, 1), Plateau, "1 candidate in a row without a win"),
    ],
)
def test_ends(ledger: Ledger, limits: BudgetLimits, stop: type[Exception], said: str) -> None:
    with pytest.raises(stop, match=said):
        limits.check(ledger, 9003.0)


def test_goes_on_while_anything_is_left(ledger: Ledger) -> None:
    BudgetLimits(4.1, 3, 2).check(ledger, 9003.0)


@pytest.mark.parametrize(
    ("limits", "tokens", "cost", "holds"),
    [
        (BudgetLimits(99.0, 9, 9), 10**9, 1e6, True),
        (BudgetLimits(99.0, 9, 9, tokens=1500), 0, 1e6, True),
        (BudgetLimits(99.0, 9, 9, tokens=1500), 499, 0.0, True),
        (BudgetLimits(99.0, 9, 9, tokens=1500), 500, 0.0, False),
        (BudgetLimits(99.0, 9, 9, tokens=1000), 0, 0.0, False),
        (BudgetLimits(99.0, 9, 9, cost=0.5), 10**9, 0.24, True),
        (BudgetLimits(99.0, 9, 9, cost=0.5), 0, 0.25, False),
        (BudgetLimits(99.0, 9, 9, cost=0.25), 0, 0.0, False),
    ],
)
def test_what_model_calls_may_still_use(
    ledger: Ledger, limits: BudgetLimits, tokens: int, cost: float, holds: bool
) -> None:
    """One call used 1000 tokens and a quarter of a dollar."""
    ledger.append(CALLED)
    assert limits.may_spend(ledger, tokens, cost) == holds


def test_the_case_fills_the_gaps() -> None:
    limits = BudgetOverrides(candidates=7).resolve(CaseBudgets(seconds=60, candidates=5, patience=3))
    assert limits == BudgetLimits(60, 7, 3)
