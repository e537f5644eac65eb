"""Screening and confirmation over drawn times, of which it is known what is true: error rates, not luck."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.harness.case.settings import Settings
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.judge.trial import ConfirmationTrial, ScreeningTrial
from hillclimb.harness.records import Pair, Reason, Side
from tests.fakes.drawn_duels import DrawnDuels, Truth, drawn_duels

A, B = Side(tree="/candidate"), Side(tree="/incumbent")
GUARDED = {"guardrails": [{"suite": "small", "max_slowdown": 0.1}]}
"""Besides what is timed, this suite."""
ALPHA = 0.05
NIGHTS = 120


def ignore(progress: object) -> None:
    pass


def settings(**more: Any) -> Settings:
    return Settings.model_validate({"schema": 1, "summary": "drawn", **more})


def screened(duels: DrawnDuels) -> None:
    with duels.spawn_pair(A, B) as sides:
        ScreeningTrial(duels, ignore).run(sides)


def confirmed(duels: DrawnDuels, alpha: float = ALPHA, *, baseline: Side = B) -> ConfirmationTrial:
    trial = ConfirmationTrial(duels, alpha, ignore)
    trial.run(A, B, baseline, lambda process: None)
    return trial


def calibrated(duels: DrawnDuels, truth: Truth) -> DrawnDuels:
    """With the clocks' scatter known from an honest pair's times."""
    honest = drawn_duels(truth, duels.case.settings, seed=99)
    duels.clocks.calibrate(
        [pair for _ in range(4) for pair in honest.measure_fresh_pairs(A, B, "noise", ignore)]
    )
    return duels


def fault(truth: Truth, seed: int, **more: Any) -> Reason | None:
    """Why a confirmation refuses, if it does."""
    try:
        confirmed(drawn_duels(truth, settings(**more), seed))
    except CandidateFault as refused:
        return refused.reason
    return None


def at(speedup: float, **more: Any) -> Truth:
    return Truth(speedups={"main": speedup, "small": 1.0}, **more)


@pytest.mark.parametrize(
    "truth",
    [at(1.0), at(1.01), at(0.99), at(1.0, process_scatter=0.05), at(1.0, segment_scatter=0.1)],
    ids=["as fast", "the smallest effect", "slower", "lives that differ", "noisy segments"],
)
def test_what_is_no_win_is_kept_no_more_often_than_alpha_allows(truth: Truth) -> None:
    """The objective's smallest effect, 1 %, is none either."""
    kept = sum(fault(truth, seed) is None for seed in range(NIGHTS))
    assert kept <= ALPHA * NIGHTS


def test_a_true_gain_is_kept_and_its_interval_holds_the_truth() -> None:
    trials = [confirmed(drawn_duels(at(1.05), settings(), seed)) for seed in range(NIGHTS)]
    assert all(trial.e_value >= 1 / ALPHA for trial in trials)
    intervals = [trial.speedup for trial in trials if trial.speedup]
    assert len(intervals) == NIGHTS
    holding = sum(interval.low <= 1.05 <= interval.high for interval in intervals)
    assert holding >= 0.9 * NIGHTS, "of 95 %"


def test_the_speedup_is_reported_from_pairs_that_decided_nothing() -> None:
    trial = confirmed(drawn_duels(at(1.05), settings(), seed=1))
    stages = [pair.stage for pair in trial.pairs]
    assert stages.index("report") > max(i for i, stage in enumerate(stages) if stage == "decide")
    assert trial.speedup == trial.cumulative
    assert trial.speedup and trial.speedup.pairs == stages.count("report")


class Regressing(DrawnDuels):
    """Decides on a gain that is not there any more when it is measured afresh."""

    def measure_fresh_pairs(
        self, candidate: Side, opponent: Side, stage: str, *rest: Any, **more: Any
    ) -> list[Pair]:  # type: ignore[override]
        later = replace(self.truth, speedups={"main": 1.004}, process_scatter=0.03)
        duels = DrawnDuels(**{**vars(self), "truth": later})
        return duels.measure_fresh_pairs(candidate, opponent, stage, *rest, **more)  # type: ignore[arg-type]


def test_a_win_whose_fresh_interval_holds_1_is_none() -> None:
    details = []
    for seed in range(NIGHTS):
        duels = Regressing(**vars(drawn_duels(at(1.05), settings(), seed)))
        try:
            trial = confirmed(duels)
        except CandidateFault as refused:
            details.append(refused.detail)
        else:
            assert trial.speedup and trial.speedup.low > 1
    assert sum("measured afresh it is" in detail for detail in details) > NIGHTS / 4


def test_over_another_baseline_the_cumulative_speedup_has_pairs_of_its_own() -> None:
    trial = confirmed(drawn_duels(at(1.05), settings(), seed=1), baseline=Side(tree="/baseline"))
    assert [pair.stage for pair in trial.pairs].count("cumulative") == 5
    assert trial.cumulative and trial.cumulative != trial.speedup


def test_screening_sends_gains_on_and_the_slow_home() -> None:
    def reason(speedup: float, seed: int) -> Reason | None:
        try:
            screened(drawn_duels(at(speedup), settings(), seed))
        except CandidateFault as refused:
            return refused.reason
        return None

    assert [reason(1.05, seed) for seed in range(50)] == [None] * 50
    assert {reason(0.9, seed) for seed in range(50)} == {Reason.SLOWER}
    assert reason(0.4, 1) == Reason.SLOWER, "by its first calls alone"
    assert sum(reason(1.0, seed) is None for seed in range(50)) <= 15


@pytest.mark.parametrize(
    ("small", "refused"), [(1.0, None), (0.95, None), (0.8, Reason.GUARDRAIL), (0.2, Reason.GUARDRAIL)]
)
def test_a_guardrail_refuses_what_costs_more_than_it_allows(small: float, refused: Reason | None) -> None:
    truth = Truth(speedups={"main": 1.5, "small": small})
    assert {fault(truth, seed, **GUARDED) for seed in range(30)} == {refused}


@pytest.mark.parametrize(("small", "refused"), [(0.95, False), (0.91, False), (0.7, True)])
def test_a_screening_stops_at_a_guardrail_only_beyond_doubt(small: float, refused: bool) -> None:
    duels = drawn_duels(Truth(speedups={"main": 1.5, "small": small}), settings(**GUARDED), seed=3)
    if not refused:
        return screened(duels)
    with pytest.raises(CandidateFault, match="suite small runs at") as caught:
        screened(duels)
    assert caught.value.reason == Reason.GUARDRAIL
    return None


def test_every_guardrail_is_reported_with_what_it_saw() -> None:
    truth = Truth(speedups={"main": 1.5, "small": 0.97})
    reports = [confirmed(drawn_duels(truth, settings(**GUARDED), seed)).guardrails for seed in range(50)]
    assert {(report.suite, report.max_slowdown, report.passed) for (report,) in reports} == {
        ("small", 0.1, True)
    }
    assert sum(report.speedup.low < 0.97 < report.speedup.high for (report,) in reports) >= 43, "of 95 %"


def test_a_gain_that_single_calls_do_not_show_is_none() -> None:
    assert {fault(at(1.5, per_call=1.0), seed) for seed in range(30)} == {Reason.NOT_PER_CALL}
    assert {fault(at(1.5), seed) for seed in range(30)} == {None}


def test_a_gain_bought_with_slow_blocks_now_and_then_is_none() -> None:
    assert None not in {fault(at(1.05, slow_share=0.1), seed) for seed in range(30)}


@pytest.mark.parametrize(("real", "refused"), [(1.1, None), (1.0, Reason.CLOCKS_DISAGREE)])
def test_events_decide_only_where_the_judges_clock_bears_them_out(
    real: float, refused: Reason | None
) -> None:
    seen = set()
    for seed in range(30):
        truth = at(real, claimed=1.1)
        duels = calibrated(drawn_duels(truth, settings(), seed), at(1.0, claimed=1.0))
        try:
            confirmed(duels)
            seen.add(None)
        except CandidateFault as refusal:
            seen.add(refusal.reason)
    assert seen == {refused}


def test_an_incumbent_is_compared_with_itself_without_bias() -> None:
    duels = drawn_duels(at(1.0), settings(), seed=5)
    pairs: list[Pair] = duels.measure_fresh_pairs(A, A, "noise", ignore)
    assert {pair.stage for pair in pairs} == {"noise"}
    assert {block.order for pair in pairs for block in pair.blocks} == {"ABBA", "BAAB"}
