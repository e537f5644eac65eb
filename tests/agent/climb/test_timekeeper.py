"""A wall budget holds: what cannot end in time is not begun, what runs over is cut, and what is left comes first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.record.entries import SessionEntry
from hillclimb.agent.screen.events import OpenedEvent, ProposedEvent
from hillclimb.harness.records import Comparison, Confirmation, GateReport, Side, Watch
from tests.fakes.clock import SkippingClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.night import Night, git, make_repository

DECISION, SCREENING = 600.0, 1.5


class SlowJudge(SimulatedJudge):
    """Says that a decision took ten minutes."""

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        decided = super().confirm(candidate, incumbent, baseline, alpha, watch)
        return decided.model_copy(update={"seconds": DECISION})


class HangingJudge(SimulatedJudge):
    """Never comes to a decision, and measured its baseline in no time."""

    def compare(self, first: Side, last: Side, stage: str, watch: Watch) -> Comparison:  # type: ignore[override]
        found = super().compare(first, last, stage, watch)  # type: ignore[arg-type]
        return found.model_copy(update={"seconds": 0.01})

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        time.sleep(60)
        raise AssertionError("nobody waits that long")


class HangingGate(SimulatedJudge):
    def gate(self, side: Side, watch: Watch) -> GateReport:
        time.sleep(60)
        raise AssertionError("nobody waits that long")


class SlowBaseline(SimulatedJudge):
    """Says that measuring the baseline took an hour, so that no decision can be expected to take less."""

    def compare(self, first: Side, last: Side, stage: str, watch: Watch) -> Comparison:  # type: ignore[override]
        found = super().compare(first, last, stage, watch)  # type: ignore[arg-type]
        return found.model_copy(update={"seconds": 3600.0})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def test_a_decision_that_cannot_end_in_time_is_not_begun_and_comes_first_later(root: Path) -> None:
    plan = ("improve", "improve", "slower")
    first = Night(root, plan=plan, judge=SlowJudge, budgets=BudgetOverrides(seconds=400))
    finished = first.climb()
    assert finished.reason.startswith("the budget of 6 min 40 s has ")
    assert "a decision takes about 10 min" in finished.reason
    assert finished.reason.endswith("candidate 2 comes first when the run goes on")
    assert (first.ledger.judged, first.ledger.confirmations) == (1, 1)
    assert first.ledger.pending and first.ledger.pending.n == 2

    later = Night(root, plan=plan, judge=SlowJudge, budgets=BudgetOverrides(seconds=5000))
    assert later.climb().reason == "the proposer has no ideas left"
    assert [e.n for e in later.events if isinstance(e, ProposedEvent)] == [2, 3]
    assert later.ledger.confirmations == 2


def test_before_the_first_decision_the_baseline_and_the_settings_tell_how_long_one_takes(root: Path) -> None:
    night = Night(root, plan=("improve",), judge=SlowBaseline, budgets=BudgetOverrides(seconds=8000))
    assert "a decision takes about" in night.climb().reason
    assert (night.ledger.judged, night.ledger.confirmations) == (0, 0)


@pytest.mark.slow(3)
def test_a_decision_that_runs_over_is_cut_and_comes_first_later(root: Path) -> None:
    night = Night(
        root,
        plan=("improve",),
        judge=HangingJudge,
        budgets=BudgetOverrides(seconds=3),
        clock=SkippingClock(),
    )
    began = time.monotonic()
    finished = night.climb()
    assert time.monotonic() - began < 30
    assert finished.reason == "the budget of 3 s is used up; candidate 1 comes first when the run goes on"
    assert night.ledger.pending and not night.ledger.pending.judged

    later = Night(root, plan=("improve",), clock=SkippingClock(), budgets=BudgetOverrides(seconds=1000))
    assert later.climb().wins == 1
    assert len(later.ledger.candidates) == 1


def test_a_baseline_that_takes_longer_than_the_budget_is_cut(root: Path) -> None:
    night = Night(root, judge=HangingGate, budgets=BudgetOverrides(seconds=1), clock=SkippingClock())
    began = time.monotonic()
    assert night.climb().reason == "the budget of 1 s is used up"
    assert time.monotonic() - began < 30
    opened = night.ledger.opened
    assert opened and not night.ledger.baselined
    assert git(root, "rev-parse", "hillclimb/demo/toy/night").strip() == opened.base
    assert Night(root, plan=("improve",), clock=SkippingClock()).climb().wins == 1


def test_a_run_without_time_left_starts_no_judge(root: Path) -> None:
    plan = ("slower", "improve")
    Night(root, plan=plan, budgets=BudgetOverrides(candidates=1)).climb()

    def judge() -> SimulatedJudge:
        raise AssertionError("there is no time for a judge")

    spent = Night(root, plan=plan, judge=judge, budgets=BudgetOverrides(seconds=1))
    assert spent.climb().reason == "the budget of 1 s is used up"


def test_the_last_measurement_that_had_no_time_comes_first_later(root: Path) -> None:
    class Closing(SimulatedJudge):
        """Says that the baseline's measurement took 20 s when asked, so that the last one is expected to."""

    plan = ("improve", "slower")
    first = Night(root, plan=plan, budgets=BudgetOverrides(candidates=1))
    first.climb()
    path = first.folder / "ledger.jsonl"
    lines = [line for line in path.read_text().splitlines() if '"kind":"remeasured"' not in line]
    path.write_text("\n".join(lines) + "\n")
    assert first.ledger.remeasured is None
    later = Night(root, plan=plan, judge=Closing)
    later.climb()
    after = path.read_text().splitlines()[len(lines) :]
    kinds = [line.split('"kind":"')[1].split('"')[0] for line in after]
    assert kinds.index("remeasured") < kinds.index("proposed")


def test_a_nights_rest_is_not_taken_for_work(root: Path) -> None:
    class Later(SkippingClock):
        def now(self) -> float:
            return super().now() + 30_000

    budgets = BudgetOverrides(seconds=20_000)
    Night(root, plan=("slower",), clock=SkippingClock(), budgets=budgets).climb()
    morning = Night(root, plan=("slower", "slower"), clock=Later(), budgets=budgets)
    morning.climb()
    opened = next(event for event in morning.events if isinstance(event, OpenedEvent))
    assert opened.left and opened.left.seconds > 19_000


def test_the_ledger_has_the_budgets_in_force(root: Path) -> None:
    Night(root, plan=("slower",), budgets=BudgetOverrides(seconds=900, until=2.0)).climb()
    night = Night(root, plan=("slower",))
    assert night.ledger.budgets
    assert dict(night.ledger.budgets) == {
        "seconds": 900, "candidates": 50, "patience": 50, "tokens": None, "cost": None, "until": 2.0,
    }  # fmt: skip
    assert SessionEntry.model_validate({"time": 1.0, "pid": 1, "host": "h"}).budgets is None


def test_a_target_ends_the_run_once_the_whole_interval_is_there(root: Path) -> None:
    """Each win is 1.25 times as fast; its interval begins a hundredth below."""
    night = Night(root, plan=("improve",) * 5, budgets=BudgetOverrides(until=1.55))
    finished = night.climb()
    assert (finished.wins, finished.candidates) == (3, 3)
    assert finished.reason.startswith("the target of 1.55x is reached: 1.953x")
    assert not finished.interrupted
    assert Night(root, plan=("improve",) * 5, budgets=BudgetOverrides(until=1.55)).climb().candidates == 3
    assert Night(root, plan=("improve",) * 5, budgets=BudgetOverrides(until=2.0)).climb().candidates == 4
