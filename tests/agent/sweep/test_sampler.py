"""The sampler: lists what is valid, ranks it, repeats nothing, and beats dice on spaces made up here."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import optuna
import pytest

import hillclimb.agent.sweep.valid_configs as listing_module
from hillclimb.agent.sweep.landscape import build_landscape
from hillclimb.agent.sweep.ranking import (
    MAX_UNCERTAINTY_FACTOR,
    MIN_LOG_GAIN,
    MIN_UNCERTAINTY_FACTOR,
    EvaluatedRows,
    ListRanker,
    _improvement,
    _standardise,
    _uncertainty_factor,
)
from hillclimb.agent.sweep.sampler import BATCH_SIZE, ListSampler, SpaceExhausted
from hillclimb.agent.sweep.surrogate import Posterior, distances, fit_covariance, prior_covariance
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.agent.sweep.valid_configs import enumerate_valid, list_valid
from hillclimb.harness.knobs.knobs import KnobValue
from tests.agent.sweep.synthetic import climb, knobs, open_ledger

Values = Mapping[str, KnobValue]
TILES: dict[str, list[KnobValue]] = {
    "X": [8, 16, 32, 64, 128],
    "Y": [1, 2, 4, 8, 16],
    "KIND": ["a", "b", "c"],
    "ON": [False, True],
}
FENCE = ["X * Y <= 256", "KIND != 'c' or not ON"]


def speed(values: Values) -> float:
    """Log speed with an interaction; the best is X=32, Y=4, KIND=b, ON=1."""
    x, y = math.log2(float(values["X"])), math.log2(float(values["Y"]))
    kind = {"a": 0.0, "b": 0.4, "c": 0.2}[str(values["KIND"])]
    return (
        kind - 0.1 * (x - 5) ** 2 - 0.1 * (y - 2) ** 2 - 0.15 * abs(x + y - 7) + (0.1 if values["ON"] else 0)
    )


def space(domains: Mapping[str, list[KnobValue]]) -> dict[str, optuna.distributions.BaseDistribution]:
    return {name: optuna.distributions.CategoricalDistribution(values) for name, values in domains.items()}


def search(
    domains: Mapping[str, list[KnobValue]],
    value: Callable[[Values], float | None],
    count: int,
    sampler: optuna.samplers.BaseSampler,
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(count):
        trial = study.ask(space(domains))
        found = value(trial.params)
        if found is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, found)
    return study


def params(study: optuna.Study) -> list[str]:
    return [json.dumps(trial.params) for trial in study.trials]


class TestListing:
    def test_it_holds_what_satisfies_every_constraint(self) -> None:
        listing = enumerate_valid(TILES, FENCE)
        assert listing is not None
        expected = [
            dict(zip(TILES, values, strict=True))
            for values in product(*TILES.values())
            if int(values[0]) * int(values[1]) <= 256 and (values[2] != "c" or not values[3])
        ]
        assert [listing.configuration(row) for row in range(len(listing))] == expected

    def test_configurations_are_found_again_and_others_are_not(self) -> None:
        listing = enumerate_valid(TILES, FENCE)
        assert listing is not None
        every = [listing.configuration(row) for row in range(len(listing))]
        assert listing.find_rows(every).tolist() == list(range(len(listing)))
        strange: list[dict[str, KnobValue]] = [
            {"X": 128, "Y": 16, "KIND": "a", "ON": False},
            {"X": 7, "Y": 1, "KIND": "a", "ON": False},
            {"X": 8},
        ]
        assert listing.find_rows(strange).tolist() == [-1, -1, -1]

    def test_neighbours_differ_in_one_knob_and_are_valid(self) -> None:
        listing = enumerate_valid(TILES, FENCE)
        assert listing is not None
        for row in range(0, len(listing), 7):
            apart = (listing.rows != listing.rows[row]).sum(axis=1)
            assert sorted(listing.neighbours(row).tolist()) == np.flatnonzero(apart == 1).tolist()

    def test_continuous_and_huge_spaces_are_not_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list_valid(knobs("F: {type: float, low: 0, high: 1, default: 0}")) is None
        wide = "".join(f"K{i}: {{type: int, low: 0, high: 9, default: 0}}\n" for i in range(12))
        assert list_valid(knobs(wide)) is None
        monkeypatch.setattr(listing_module, "MAX_CONFIGURATIONS", 149)
        listing_module._enumerate.cache_clear()
        assert enumerate_valid(TILES, []) is None
        found = enumerate_valid(TILES, ["X * Y <= 64"])
        assert found is not None and len(found) < 149
        listing_module._enumerate.cache_clear()


class TestSurrogate:
    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        listing = enumerate_valid(TILES, [])
        assert listing is not None
        rows = np.random.default_rng(0).permutation(len(listing))[:count]
        values = np.array([speed(listing.configuration(row)) for row in rows.tolist()])
        return listing.rows[rows], (values - values.mean()) / values.std()

    def test_it_foretells_what_it_has_not_seen(self) -> None:
        inputs, values = self.rows(120)
        scales = distances(list(TILES.values()))
        fitted = Posterior(
            fit_covariance(inputs[:60], values[:60], scales), inputs[:60], values[:60], inputs[60:]
        )
        assert np.corrcoef(fitted.mean, values[60:])[0, 1] > 0.95
        unfitted = Posterior(prior_covariance(scales), inputs[:60], values[:60], inputs[60:])
        assert np.mean((fitted.mean - values[60:]) ** 2) < np.mean((unfitted.mean - values[60:]) ** 2)

    def test_what_was_seen_is_certain_and_expecting_a_row_makes_it_so(self) -> None:
        inputs, values = self.rows(80)
        covariance = fit_covariance(inputs[:40], values[:40], distances(list(TILES.values())))
        posterior = Posterior(covariance, inputs[:40], values[:40], inputs)
        assert posterior.variance[:40].max() < posterior.variance[40:].mean()
        before = posterior.variance.copy()
        posterior.condition_on_mean(60)
        assert posterior.variance[60] < 0.5 * before[60]
        assert (posterior.variance <= before + 1e-6).all()

    def test_scales_are_logarithmic_where_values_span_much(self) -> None:
        powers, steps, words, zero = distances(
            [[1, 2, 4, 8, 16], [4, 5, 6, 7, 8], ["a", "b", "c"], [0, 1, 3]]
        )
        assert powers[0, 2] == pytest.approx(0.25) and steps[0, 2] == pytest.approx(0.25)
        assert words[0, 2] == words[0, 1] == 1 and words[1, 1] == 0
        assert zero[0, 1] == pytest.approx(0.25)


class TestListSampler:
    @pytest.mark.slow(2)
    def test_it_finds_the_best_far_sooner_than_dice(self) -> None:
        found = {"ours": list[float](), "dice": list[float]()}
        for seed in range(4):
            for name, sampler in (
                ("ours", ListSampler(space(TILES), seed=seed)),
                ("dice", optuna.samplers.RandomSampler(seed=seed)),
            ):
                found[name].append(search(TILES, speed, 30, sampler).best_value)
        best = speed({"X": 32, "Y": 4, "KIND": "b", "ON": True})
        assert found["ours"].count(pytest.approx(best)) >= 3
        assert statistics.mean(found["dice"]) < statistics.mean(found["ours"]) - 0.05

    def test_it_asks_for_nothing_invalid_and_nothing_twice_until_all_was_asked(self) -> None:
        sampler = ListSampler(space(TILES), FENCE, seed=1)
        listing = enumerate_valid(TILES, FENCE)
        assert listing is not None
        study = search(TILES, speed, len(listing), sampler)
        assert len(set(params(study))) == len(listing)
        assert (listing.find_rows([trial.params for trial in study.trials]) >= 0).all()
        with pytest.raises(SpaceExhausted, match="stop asking"):
            study.ask(space(TILES))

    def test_a_study_taken_up_by_another_sampler_goes_on_the_same(self) -> None:
        whole = search(TILES, speed, 33, ListSampler(space(TILES), FENCE, seed=5))
        begun = search(TILES, speed, 18, ListSampler(space(TILES), FENCE, seed=5))
        begun.sampler = ListSampler(space(TILES), FENCE, seed=5)
        for _ in range(15):
            trial = begun.ask(space(TILES))
            begun.tell(trial, speed(trial.params))
        assert params(begun) == params(whole)

    def test_a_batch_is_asked_for_before_any_of_it_is_told(self) -> None:
        study = search(TILES, speed, 20, ListSampler(space(TILES), seed=2))
        told = search(TILES, speed, 20, ListSampler(space(TILES), seed=2))
        ahead = [study.ask(space(TILES)).params for _ in range(BATCH_SIZE)]
        for expected in ahead:
            trial = told.ask(space(TILES))
            assert trial.params == expected
            told.tell(trial, speed(trial.params))

    @pytest.mark.parametrize("failed", [0, 10, 90, 900])
    def test_however_many_fail_those_that_ran_are_told_apart(self, failed: int) -> None:
        ran = np.linspace(-1, 0, 100)
        worth = _standardise(np.concatenate([np.full(failed, -np.inf), ran]))
        assert (worth[:failed] == worth.min()).all(), "as bad as the slow ones, and no worse"
        assert len(np.unique(worth)) >= 70
        assert worth.argmax() == len(worth) - 1

    @pytest.mark.parametrize(
        ("values", "low", "high"),
        [
            ([0.0, -1.0, math.nan, 1.0], MIN_UNCERTAINTY_FACTOR, MIN_UNCERTAINTY_FACTOR),
            ([0.0, 1.0, math.nan, 0.5], MIN_UNCERTAINTY_FACTOR, MIN_UNCERTAINTY_FACTOR + 1),
            ([1.0, *[0.5] * 200], MAX_UNCERTAINTY_FACTOR, MAX_UNCERTAINTY_FACTOR),
            ([1.0, *[0.5] * 200, 1.0 + 2 * MIN_LOG_GAIN], MIN_UNCERTAINTY_FACTOR, MIN_UNCERTAINTY_FACTOR),
            ([1.0, *[0.5] * 200, 1.0 + MIN_LOG_GAIN / 2], MAX_UNCERTAINTY_FACTOR, MAX_UNCERTAINTY_FACTOR),
            ([math.nan] * 30, MIN_UNCERTAINTY_FACTOR, MIN_UNCERTAINTY_FACTOR),
        ],
    )
    def test_the_longer_nothing_better_is_found_the_less_it_believes(
        self, values: list[float], low: float, high: float
    ) -> None:
        assert low <= _uncertainty_factor(np.array(values)) <= high

    def test_where_it_is_stuck_every_other_row_goes_farther(self) -> None:
        listing = enumerate_valid({f"K{i}": list(range(6)) for i in range(5)}, [])
        assert listing is not None
        far = {"stuck": 0.0, "not stuck": 0.0}
        for seed in range(3):
            rng = np.random.default_rng(seed)
            others = rng.choice(np.arange(1, len(listing)), 70, replace=False)
            for when, rows in (("stuck", [0, *others]), ("not stuck", [*others, 0])):
                away = np.linalg.norm(listing.rows, axis=1)
                seen = EvaluatedRows(np.array(rows), -away[rows])
                chosen = ListRanker(listing).next_rows(seen, np.array([], dtype=np.int64), BATCH_SIZE, rng)
                far[when] += float(away[chosen[1::2]].sum())
        assert far["stuck"] > 1.3 * far["not stuck"]

    def test_what_nothing_explains_may_as_well_make_the_promising_better(self) -> None:
        """With the noise left out, the row that is expected to be slow would be tried first."""

        def order(noise: float) -> list[int]:
            posterior = SimpleNamespace(
                mean=np.array([0.5, -0.9]), variance=np.array([0.36, 0.64]) ** 2, noise_variance=noise
            )
            improvement = _improvement(cast(Posterior, posterior), 2.4, MIN_UNCERTAINTY_FACTOR)
            return sorted((0, 1), key=lambda row: -improvement[row])

        assert (order(0.0), order(0.46)) == ([1, 0], [0, 1])

    def test_failures_are_kept_away_from(self) -> None:
        def falls(values: Values) -> float | None:
            return None if values["KIND"] == "b" or int(values["X"]) > 32 else speed(values)

        reachable = [dict(zip(TILES, v, strict=True)) for v in product(*TILES.values())]
        best = max(speed(v) for v in reachable if falls(v) is not None)
        early = late = 0
        for seed in range(4):
            study = search(TILES, falls, 45, ListSampler(space(TILES), seed=seed))
            failed = [trial.state == optuna.trial.TrialState.FAIL for trial in study.trials]
            early, late = early + sum(failed[:15]), late + sum(failed[15:30])
            assert study.best_value == pytest.approx(best)
        assert early > 1.5 * late

    def test_nothing_but_failures_is_survived(self) -> None:
        study = search(TILES, lambda values: None, 25, ListSampler(space(TILES), seed=0))
        assert len(set(params(study))) == 25

    def test_equal_values_are_survived(self) -> None:
        assert (
            len(set(params(search(TILES, lambda values: 1.0, 25, ListSampler(space(TILES), seed=0))))) == 25
        )

    def test_a_study_that_minimizes_is_minimized(self) -> None:
        study = optuna.create_study(direction="minimize", sampler=ListSampler(space(TILES), seed=0))
        study.optimize(
            lambda trial: -speed({n: trial.suggest_categorical(n, v) for n, v in TILES.items()}), 30
        )
        assert study.best_value < -0.9 * speed({"X": 32, "Y": 4, "KIND": "b", "ON": True})

    def test_one_knob_is_enough(self) -> None:
        domains: dict[str, list[KnobValue]] = {"N": list(range(40))}
        study = search(domains, lambda v: -abs(float(v["N"]) - 29), 20, ListSampler(space(domains), seed=0))
        assert study.best_value == 0

    def test_continuous_spaces_are_left_to_tpe(self) -> None:
        floats = {"F": optuna.distributions.FloatDistribution(0, 1)}
        study = optuna.create_study(direction="maximize", sampler=ListSampler(floats, seed=0))
        study.optimize(lambda trial: -abs(trial.suggest_float("F", 0, 1) - 0.7), 30)
        assert study.best_value > -0.1

    @pytest.mark.slow(3)
    def test_noise_and_many_invalid_ones_leave_it_better_than_dice(self) -> None:
        """In the mean: on any one space dice may be lucky."""
        found = [self._noisy_search(seed) for seed in range(8)]
        assert sum(ours for ours, _ in found) > sum(dice for _, dice in found)

    def _noisy_search(self, seed: int) -> tuple[float, float]:
        rng = random.Random(seed)
        domains: dict[str, list[KnobValue]] = {f"K{i}": [1, 2, 4, 8, 16] for i in range(5)}
        target = [rng.randrange(5) for _ in domains]

        def noisy(values: Values) -> float | None:
            steps = [math.log2(float(value)) for value in values.values()]
            if (sum(steps) * 7 + steps[0] * 3) % 5 < 2:
                return None
            return -sum(0.1 * abs(a - b) for a, b in zip(steps, target, strict=True)) + rng.gauss(0, 0.01)

        ours = search(domains, noisy, 60, ListSampler(space(domains), ["K0 * K1 * K2 <= 512"], seed=seed))
        dice = search(domains, noisy, 60, optuna.samplers.RandomSampler(seed=seed))
        return ours.best_value, dice.best_value

    def test_earlier_runs_shorten_the_search(self) -> None:
        rng = random.Random(0)
        every = [dict(zip(TILES, values, strict=True)) for values in product(*TILES.values())]
        seen = [(values, 0.8 * speed(values) + 0.3) for values in rng.sample(every, 50)]
        fresh, warm = (
            [
                search(TILES, speed, 8, ListSampler(space(TILES), seed=s, earlier=e)).best_value
                for s in range(3)
            ]
            for e in ([], seen)
        )
        assert statistics.mean(warm) > statistics.mean(fresh) + 0.05

    @pytest.mark.slow(2)
    def test_asking_is_quick_on_a_long_list_with_much_seen(self) -> None:
        domains: dict[str, list[KnobValue]] = {f"K{i}": list(range(1, 6)) for i in range(7)}
        listing = enumerate_valid(domains, [])
        assert listing is not None and len(listing) == 78_125
        rng = np.random.default_rng(0)
        rows = rng.permutation(len(listing))[:10_000]
        seen = EvaluatedRows(rows, listing.rows[rows].sum(axis=1) + rng.standard_normal(len(rows)))
        began = time.thread_time()
        chosen = ListRanker(listing).next_rows(seen, np.array([], dtype=np.int64), 5, rng)
        spent = time.thread_time() - began
        assert len(set(chosen)) == 5 and not set(chosen) & set(rows.tolist())
        assert listing.rows[chosen].sum(axis=1).mean() > 24  # of 28, 14 on average
        assert spent < 5 * 2.0  # 5 * 0.2 s on an idle machine


class TestSweep:
    def test_it_proposes_nothing_that_breaks_a_constraint(self, tmp_path: Path) -> None:
        start = knobs(
            "A: {type: log-int, low: 1, high: 64, default: 1, requires: [A * B <= 32]}\n"
            "B: {type: log-int, low: 1, high: 64, default: 1}\n"
        )
        ledger = open_ledger(tmp_path)
        proposed = climb(ledger, SweepProposer(start, 0), start, lambda c: 1.0 + float(c["A"]) / 100, 60)
        valid = [(a, b) for a in range(7) for b in range(7) if a + b <= 5]
        assert proposed == len(valid) - 1
        assert build_landscape(start, ledger).knobs["A"].default == 32

    def test_floats_obey_constraints_too(self, tmp_path: Path) -> None:
        start = knobs(
            "F: {type: float, low: 0, high: 1, default: 0, requires: [F < 0.2 or LIT]}\n"
            "LIT: {type: bool, default: false}\n"
        )
        ledger = open_ledger(tmp_path)
        climb(ledger, SweepProposer(start, 0), start, lambda c: 1.0 + float(c["F"]), 20)
        assert all(seen.configuration["LIT"] or float(seen.configuration["F"]) < 0.2
                   for seen in build_landscape(start, ledger).observations)  # fmt: skip
        assert len(ledger.candidates) == 20
