"""The sweep: finds optima, repeats nothing, exhausts, and thinks the same after a resume."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

import hillclimb.agent.sweep.sweep as sweep_module
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import JudgedEntry, ProposedEntry, SettledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.importance import (
    MIN_OBSERVATIONS,
    KnobImportances,
    compute_importances,
    importances,
)
from hillclimb.agent.sweep.landscape import KnobObservation, Landscape, build_landscape
from hillclimb.agent.sweep.optuna_study import (
    MAX_REMEMBERED_BEST,
    MAX_REMEMBERED_LATEST,
    best_and_latest,
    build_study,
    write_study,
)
from hillclimb.agent.sweep.sweep import SweepProposer, describe
from hillclimb.harness.knobs.knobs import Knobs, KnobValue, defaults
from hillclimb.harness.records import Reason
from tests.agent.sweep.synthetic import climb, edit, judge_next, knobs, open_ledger, separable
from tests.fakes.knob_values import draw_value

BEST: dict[str, KnobValue] = {"TILE": 64, "ORDER": "ikj", "UNROLL": 4, "FASTMATH": True}
SMALL = "A: {type: int, low: 0, high: 2, default: 1}\nB: {type: bool, default: true}\n"


class Dice:
    """Random search, as good as a sweep must be better than."""

    def __init__(self, domain: Knobs, seed: int) -> None:
        self._domain, self._rng = domain, random.Random(seed)

    def propose(self, ledger: Ledger) -> Proposal | None:
        values = {name: draw_value(knob, self._rng) for name, knob in self._domain.items()}
        return Proposal(author="sweep", idea="dice", knobs=values)


def tried(start: Knobs, ledger: Ledger) -> list[tuple[KnobValue, ...]]:
    """Effective configurations in the order they were judged."""
    return [tuple(seen.configuration.values()) for seen in build_landscape(start, ledger).observations]


@pytest.mark.slow(4)
def test_finds_the_optimum_of_a_separable_space_faster_than_dice(tmp_path: Path) -> None:
    found: dict[str, list[float]] = {"sweep": [], "dice": []}
    for seed in range(5):
        for name, proposer in (("sweep", SweepProposer(knobs(), seed)), ("dice", Dice(knobs(), seed))):
            ledger = open_ledger(tmp_path / f"{name}{seed}")
            climb(ledger, proposer, knobs(), separable, 45)
            found[name].append(ledger.cumulative / separable(BEST))
    assert statistics.median(found["sweep"]) > 0.97
    assert statistics.mean(found["sweep"]) > statistics.mean(found["dice"])


def test_same_seed_and_ledger_give_the_same_proposal(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    climb(ledger, SweepProposer(knobs(), 7), knobs(), separable, 20)
    fresh = SweepProposer(knobs(), 7).propose(Ledger.read(tmp_path / "ledger.jsonl"))
    assert fresh == SweepProposer(knobs(), 7).propose(ledger)
    assert fresh is not None


def test_a_killed_run_proposes_what_an_unkilled_one_does(tmp_path: Path) -> None:
    whole, halves = open_ledger(tmp_path / "whole"), open_ledger(tmp_path / "halves")
    climb(whole, SweepProposer(knobs(), 3), knobs(), separable, 16)
    climb(halves, SweepProposer(knobs(), 3), knobs(), separable, 6)
    resumed = Ledger.open(tmp_path / "halves" / "ledger.jsonl", Disk())
    # the climb's own idea of the configuration is rebuilt too: promote what the first half won
    start = build_landscape(knobs(), resumed).knobs
    climb(resumed, SweepProposer(knobs(), 3), start, separable, 10)
    assert [c.proposal for c in resumed.candidates] == [c.proposal for c in whole.candidates]


def test_other_seeds_propose_otherwise(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    proposals = {str(SweepProposer(knobs(), seed).propose(ledger)) for seed in range(8)}
    assert len(proposals) > 4


def test_never_repeats_a_configuration_and_exhausts_the_space(tmp_path: Path) -> None:
    start = knobs(SMALL)
    ledger = open_ledger(tmp_path)
    speed = {(0, False): 1.3, (2, True): 1.2}
    proposed = climb(
        ledger, SweepProposer(start, 1), start, lambda c: speed.get((int(c["A"]), bool(c["B"])), 0.9), 50
    )
    assert proposed == 5  # six configurations, one of them the baseline
    assert len(set(tried(start, ledger))) == len(tried(start, ledger)) == 6
    assert SweepProposer(start, 1).propose(ledger) is None


def test_what_the_author_wants_first_comes_first(tmp_path: Path) -> None:
    first: list[dict[str, KnobValue]] = [
        {"TILE": 64, "ORDER": "kij"},
        {"TILE": 8},  # as it is
        {"UNROLL": 4, "FASTMATH": True},
        {"GONE": 1},
        {"TILE": 7},
        {"FASTMATH": 1},  # no bool
    ]
    ledger = open_ledger(tmp_path)
    proposer = SweepProposer(knobs(), 0, first=first)
    climb(ledger, proposer, knobs(), lambda configuration: 0.9, 8)
    ideas = [candidate.proposal.idea for candidate in ledger.candidates]
    assert ideas[:2] == ["TILE=64, ORDER=kij", "UNROLL=4, FASTMATH=1"]
    assert len(set(ideas)) == 8


def test_a_killed_run_goes_on_with_the_author_s_values(tmp_path: Path) -> None:
    """Over a win, which changes what the values left out are."""
    start = knobs("".join(f"K{i}: {{type: int, low: 0, high: 9, default: 0}}\n" for i in range(12)))
    first: list[dict[str, KnobValue]] = [{"K0": 1}, {"K1": 5}, {"K2": 2, "K1": 0}, {"K3": 3}]
    speed = {"K1=5": 1.5}

    def factor(configuration: Mapping[str, KnobValue]) -> float:
        return speed["K1=5"] if configuration["K1"] == 5 else 0.9

    whole, halves = open_ledger(tmp_path / "whole"), open_ledger(tmp_path / "halves")
    climb(whole, SweepProposer(start, 3, first=first), start, factor, 7)
    climb(halves, SweepProposer(start, 3, first=first), start, factor, 3)
    resumed = Ledger.open(tmp_path / "halves" / "ledger.jsonl", Disk())
    climb(resumed, SweepProposer(start, 3, first=first), build_landscape(start, resumed).knobs, factor, 4)
    assert [one.proposal for one in resumed.candidates] == [one.proposal for one in whole.candidates]
    ideas = [one.proposal.idea for one in whole.candidates]
    assert ideas[:5] == ["K0=1", "K1=5", "K0=1", "K1=0, K2=2", "K3=3"], "K0 beside the new K1, too"


def test_a_whole_number_of_a_float_knob_is_tried_once(tmp_path: Path) -> None:
    start = knobs(
        "LR: {type: float, low: -1, high: 2, default: 1}\nTILE: {type: int, low: 1, high: 64, default: 8}\n"
    )
    ledger = open_ledger(tmp_path)
    first: list[dict[str, KnobValue]] = [{"LR": 1}, {"LR": 1, "TILE": 64}, {"LR": -0.0}, {"LR": 0}]
    climb(ledger, SweepProposer(start, 0, first=first), start, lambda configuration: 0.9, 4)
    ideas = [one.proposal.idea for one in ledger.candidates]
    assert ideas[:2] == ["TILE=64", "LR=0.0"] and len(set(ideas)) == 4


def test_the_author_s_values_that_break_a_constraint_are_left_out(tmp_path: Path) -> None:
    start = knobs(
        "A: {type: int, low: 0, high: 3, default: 0, requires: [A <= B]}\n"
        "B: {type: int, low: 0, high: 3, default: 1}\n"
    )
    proposal = SweepProposer(start, 0, first=[{"A": 2}, {"A": 3, "B": 3}]).propose(open_ledger(tmp_path))
    assert proposal is not None and proposal.knobs == {"A": 3, "B": 3}


def test_no_knobs_no_ideas(tmp_path: Path) -> None:
    assert SweepProposer({}, 0).propose(open_ledger(tmp_path)) is None


def test_a_space_too_large_to_list_is_searched(tmp_path: Path) -> None:
    text = "".join(f"K{i}: {{type: int, low: 0, high: 9, default: 0}}\n" for i in range(12))
    ledger = open_ledger(tmp_path)
    start = knobs(text)
    assert (
        climb(ledger, SweepProposer(start, 0), start, lambda c: 1.0 + sum(map(float, c.values())) / 50, 15)
        == 15
    )
    assert len(set(tried(start, ledger))) == 16


def test_float_knobs_are_suggested_within_their_bounds(tmp_path: Path) -> None:
    start = knobs(
        "X: {type: float, low: 0.001, high: 10.0, log: true, default: 1.0}\n"
        "Y: {type: float, low: -1, high: 1, default: 0}\n"
    )
    ledger = open_ledger(tmp_path)
    climb(ledger, SweepProposer(start, 0), start, lambda c: 2.0 - abs(float(c["Y"]) - 0.5), 25)
    for candidate in ledger.candidates:
        values = {**defaults(start), **candidate.proposal.knobs}
        assert 0.001 <= float(values["X"]) <= 10 and -1 <= float(values["Y"]) <= 1
    assert ledger.cumulative > 1.7


def test_proposes_only_what_differs_from_the_incumbent(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 64}), 1.5)
    for _ in range(12):
        proposal = SweepProposer(knobs(), 0).propose(ledger)
        assert proposal and proposal.knobs
        assert proposal.knobs.get("TILE") != 64
        assert proposal.idea == describe(dict(proposal.knobs))
        judge_next(ledger, proposal, 0.8)


def test_the_incumbent_s_effective_configuration_counts_as_judged(tmp_path: Path) -> None:
    start = knobs("A: {type: bool, default: false}\nB: {type: bool, default: false}\n")
    ledger = open_ledger(tmp_path)
    judge_next(ledger, Proposal(author="sweep", idea="", knobs={"A": True}), 1.5)
    judge_next(ledger, Proposal(author="sweep", idea="", knobs={"B": True}), 1.4)
    # left: B alone, over the old default of A
    proposal = SweepProposer(start, 0).propose(ledger)
    assert proposal is not None and proposal.knobs == {"A": False, "B": True}
    judge_next(ledger, proposal, 1.0)
    assert SweepProposer(start, 0).propose(ledger) is None


def test_ideas_read_as_environment_variables() -> None:
    assert describe({"TILE": 64, "FASTMATH": True, "ORDER": "ikj"}) == "TILE=64, FASTMATH=1, ORDER=ikj"


class TestAhead:
    """A sweep that leaves the latest verdicts aside, so that they can be foreseen."""

    def losing(self, ledger: Ledger, proposal: Proposal) -> None:
        judge_next(ledger, proposal, 0.9)

    @pytest.mark.slow(3)
    def test_what_is_foreseen_is_what_is_proposed_until_something_wins(self, tmp_path: Path) -> None:
        ledger, sweep = open_ledger(tmp_path), SweepProposer(knobs(), 4, lookahead=3)
        for _ in range(15):
            foreseen = sweep.peek(ledger, 3)
            assert len(foreseen) == 3
            for expected in foreseen:
                proposal = sweep.propose(ledger)
                assert proposal == expected == SweepProposer(knobs(), 4, lookahead=3).propose(ledger)
                self.losing(ledger, proposal)
        assert len(set(tried(knobs(), ledger))) == 46

    def test_it_is_foreseen_while_one_is_being_judged(self, tmp_path: Path) -> None:
        ledger, sweep = open_ledger(tmp_path), SweepProposer(knobs(), 4, lookahead=3)
        for n in range(1, 8):
            proposal = sweep.propose(ledger)
            assert proposal
            ledger.append(ProposedEntry(n=n, time=n, proposal=proposal))
            coming = sweep.peek(ledger, 3)
            assert len(coming) == 3 and proposal not in coming
            ledger.append(
                JudgedEntry(n=n, time=n, kept=False, reason=Reason.SLOWER, screened=0.9, parent="0" * 40)
            )
            ledger.append(SettledEntry(n=n))
            assert sweep.propose(ledger) == coming[0]

    def test_a_win_makes_other_proposals_of_them(self, tmp_path: Path) -> None:
        ledger, sweep = open_ledger(tmp_path), SweepProposer(knobs(), 4, lookahead=3)
        sweep.peek(ledger, 3)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 64}), 1.5)
        proposal = sweep.propose(ledger)
        assert proposal and proposal.knobs.get("TILE") != 64
        assert proposal == SweepProposer(knobs(), 4, lookahead=3).propose(ledger)

    def test_a_small_space_is_exhausted_without_a_repetition(self, tmp_path: Path) -> None:
        start, ledger = knobs(SMALL), open_ledger(tmp_path)
        sweep = SweepProposer(start, 1, lookahead=3)
        while proposal := sweep.propose(ledger):
            sweep.peek(ledger, 3)
            self.losing(ledger, proposal)
        assert len(ledger.candidates) == 5
        assert len(set(tried(start, ledger))) == 6

    def test_without_it_nothing_is_foreseen(self, tmp_path: Path) -> None:
        assert SweepProposer(knobs(), 0).peek(open_ledger(tmp_path), 3) == []

    def test_the_study_is_asked_once_for_each_proposal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []

        def counted(*arguments: Any) -> Any:
            asked.append(1)
            return build_study(*arguments)

        monkeypatch.setattr(sweep_module, "build_study", counted)
        ledger, sweep = open_ledger(tmp_path), SweepProposer(knobs(), 4, lookahead=3)
        for _ in range(9):
            proposal = sweep.propose(ledger)
            assert proposal
            self.losing(ledger, proposal)
            sweep.peek(ledger, 3)
        assert len(asked) <= 9 + 3


class TestLandscape:
    def test_a_whole_number_of_a_float_knob_is_that_knob_s_value(self) -> None:
        """Whoever wrote it: a kernel with 1 was judged where 1.0 was."""
        start = knobs("LR: {type: float, low: -1, high: 2, default: 0.5}\n")
        landscape = Landscape(start, ())
        assert landscape.key({"LR": 1}) == landscape.key({"LR": 1.0}) == ("1.0",)
        assert landscape.key({"LR": -0.0}) == landscape.key({"LR": 0}) == ("0.0",)
        assert str(landscape.changes({"LR": 1})) == "{'LR': 1.0}"

    def test_values_are_log_speedups_over_the_baseline(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 64}), 2.0)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"UNROLL": 2}), 1.5)
        baseline, win, loss = build_landscape(knobs(), ledger).observations
        assert baseline.value == 0.0
        assert win.value == pytest.approx(0.6931, abs=1e-4)
        assert loss.value == pytest.approx(0.4055, abs=1e-4)
        assert loss.configuration == {**defaults(knobs()), "TILE": 64, "UNROLL": 2}

    def test_failures_rank_below_the_slowest_that_ran(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 64}), 0.1)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 128}), None)
        study = build_study(build_landscape(knobs(), ledger), optuna.samplers.RandomSampler(seed=0))
        _, slow, failed = study.get_trials()
        assert failed.value < slow.value
        assert failed.user_attrs == {"n": 2, "reason": "raised", "stage": None}

    def test_a_new_source_starts_the_landscape_afresh(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": 64}), 2.0)
        judge_next(ledger, edit("kernel.py", "..."), 3.0)
        landscape = build_landscape(knobs(), ledger)
        assert [seen.n for seen in landscape.observations] == [2]
        assert landscape.observations[0].configuration["TILE"] == 64
        assert defaults(landscape.knobs)["TILE"] == 64

    def test_a_rejected_edit_is_no_observation(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, edit("kernel.py", "..."), 0.5)
        assert [seen.n for seen in build_landscape(knobs(), ledger).observations] == [0]

    def test_a_win_that_brings_its_own_knobs_is_followed(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, edit("knobs.yaml", SMALL), 3.0)
        assert list(build_landscape(knobs(), ledger).knobs) == ["A", "B"]
        proposal = SweepProposer(knobs(), 0).propose(ledger)
        assert proposal is not None and set(proposal.knobs) <= {"A", "B"}

    @pytest.mark.parametrize("content", [None, "- not\n- a mapping\n", "A: {type: nonsense}\n"])
    def test_a_win_without_readable_knobs_leaves_nothing_to_sweep(
        self, tmp_path: Path, content: str | None
    ) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, edit("knobs.yaml", content), 3.0)
        assert SweepProposer(knobs(), 0).propose(ledger) is None

    def test_values_outside_the_domain_are_left_out(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        judge_next(ledger, Proposal(author="llm", idea="", knobs={"TILE": 7}), None, reason=Reason.BAD_KNOBS)
        judge_next(ledger, Proposal(author="llm", idea="", knobs={"NO": 7}), None, reason=Reason.BAD_KNOBS)
        assert [seen.n for seen in build_landscape(knobs(), ledger).observations] == [0]
        assert SweepProposer(knobs(), 0).propose(ledger) is not None


class TestStudy:
    def test_remembers_the_best_and_the_latest(self) -> None:
        rng = random.Random(0)
        observations = [KnobObservation(n, {}, None if n % 7 == 0 else rng.random()) for n in range(5000)]
        kept = best_and_latest(observations)
        assert len(kept) == MAX_REMEMBERED_BEST + MAX_REMEMBERED_LATEST
        assert kept == sorted(kept, key=lambda seen: seen.n)
        best = max(observations, key=lambda seen: -99.0 if seen.value is None else seen.value)
        assert best in kept and observations[-1] in kept

    def test_importances_name_the_knob_that_matters(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)

        def only_order(configuration: Mapping[str, KnobValue]) -> float:
            return 1.8 if configuration["ORDER"] == "ikj" else 1.0

        climb(ledger, Dice(knobs(), 0), knobs(), only_order, 40)
        shares = importances(build_landscape(knobs(), ledger))
        assert max(shares, key=lambda name: shares[name]) == "ORDER"
        assert sum(shares.values()) == pytest.approx(1.0)

    def test_importances_of_too_little_are_not_told(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        climb(ledger, Dice(knobs(), 0), knobs(), separable, 12)
        found = compute_importances(build_landscape(knobs(), ledger))
        assert found == KnobImportances(missing="too few observations (13 of 30)")
        assert SweepProposer(knobs(), 0).why_no_importances(ledger) == found.missing
        assert importances(build_landscape({}, ledger)) == {}

    def test_pure_noise_is_not_told_as_importance(self) -> None:
        def told(seed: int) -> bool:
            rng, domains = random.Random(seed), knobs()
            seen = [
                KnobObservation(
                    n, {name: draw_value(knob, rng) for name, knob in domains.items()}, rng.gauss(0.0, 0.01)
                )
                for n in range(MIN_OBSERVATIONS)
            ]
            return bool(importances(Landscape(domains, tuple(seen))))

        assert sum(map(told, range(40))) <= 6, "1 in 20 is to be expected"

    def test_study_db_is_a_mirror_that_optuna_opens(self, tmp_path: Path) -> None:
        ledger = open_ledger(tmp_path)
        climb(ledger, SweepProposer(knobs(), 0), knobs(), separable, 12)
        path = tmp_path / "study.db"
        path.write_text("whatever was there before")
        write_study(build_landscape(knobs(), ledger), path)
        study = optuna.load_study(study_name="hillclimb", storage=f"sqlite:///{path}")
        assert len(study.trials) == 13
        assert study.best_value == pytest.approx(max(t.value or 0.0 for t in study.trials))
        assert not list(tmp_path.glob("*.new"))


class TestManyCandidates:
    @pytest.mark.slow(4)
    def test_asking_stays_quick(self, tmp_path: Path) -> None:
        ledger = long_ledger(tmp_path, 10_000)
        SweepProposer(knobs(WIDE), 0).propose(ledger)  # imports Optuna
        began = time.perf_counter()
        assert SweepProposer(knobs(WIDE), 1).propose(ledger) is not None
        assert time.perf_counter() - began < 30  # 0.25 s on an idle machine


WIDE = "".join(f"K{i}: {{type: int, low: 0, high: 15, default: 0}}\n" for i in range(6))


def long_ledger(folder: Path, count: int) -> Ledger:
    """A ledger of random configurations, written at one go."""
    rng, domain, lines = random.Random(0), knobs(WIDE), []
    for n in range(1, count + 1):
        values = {name: draw_value(knob, rng) for name, knob in domain.items()}
        proposal = Proposal(author="sweep", idea=describe(values), knobs=values)
        verdict = JudgedEntry(
            n=n, time=n, kept=False, reason=Reason.SLOWER, screened=rng.uniform(0.3, 1.0), parent="0" * 40
        )
        lines += [ProposedEntry(n=n, time=n, proposal=proposal), verdict, SettledEntry(n=n)]
    path = folder / "ledger.jsonl"
    path.write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
    return Ledger.read(path)
