"""Spaces that cannot be listed: what is drawn is valid, and even; the end is told for what it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.sweep import unlisted, valid_configs
from hillclimb.agent.sweep.landscape import Landscape
from hillclimb.agent.sweep.sweep import NOT_LISTED, SweepProposer
from hillclimb.agent.sweep.unlisted import drawn, near
from hillclimb.agent.sweep.valid_configs import enumerate_valid, list_valid
from hillclimb.harness.errors import Plateau
from hillclimb.harness.knobs.knobs import Knobs
from tests.agent.sweep.synthetic import climb, knobs, open_ledger

SPARSE = (
    "".join(f"{name}: {{type: log-int, low: 1, high: 128, default: 4}}\n" for name in "ABCDE")
    + "".join(f"{name}: {{type: log-int, low: 1, high: 128, default: 1}}\n" for name in "FG")
    + "H: {type: log-int, low: 1, high: 128, default: 1, requires: [A * B * C * D * E * F * G * H == 1024]}\n"
)
WIDE = "".join(f"K{i}: {{type: int, low: 0, high: 9, default: 0}}\n" for i in range(12))


def landscape(start: Knobs) -> Landscape:
    return Landscape(start, ())


def test_a_sparse_space_is_listed_and_every_one_of_it_can_be_proposed(tmp_path: Path) -> None:
    start = knobs(SPARSE)
    listing = list_valid(start)
    assert listing is not None and len(listing) == 19_160
    ledger = open_ledger(tmp_path)
    assert climb(ledger, SweepProposer(start, 1), start, lambda c: 0.9, 25) == 25
    rows = [
        {name: knob.default for name, knob in start.items()} | c.proposal.knobs for c in ledger.candidates
    ]
    assert len(set(listing.find_rows(rows).tolist()) - {-1}) == 25


def test_24_knobs_of_8_values_have_their_rows_told_apart() -> None:
    """Their combinations are more than 64 bits can number."""
    names = [f"K{i}" for i in range(24)]
    powers = [1 << i for i in range(8)]
    pairs = [f"{names[i]} * {names[i + 1]} == 8192" for i in range(0, 24, 2)]
    listing = enumerate_valid(dict.fromkeys(names, powers), pairs)
    assert listing is not None and len(listing) == 2**12
    assert (np.diff(valid_configs.row_codes(listing.rows.astype(np.int64)[:, :20], [8] * 20)) >= 0).all()
    assert listing.find_rows([listing.configuration(row) for row in (0, 77, 4095)]).tolist() == [0, 77, 4095]
    apart = (listing.rows != listing.rows[77]).sum(axis=1)
    assert sorted(listing.neighbours(77).tolist()) == np.flatnonzero(apart == 2).tolist()


def test_a_row_without_neighbours_has_the_nearest() -> None:
    listing = enumerate_valid({"A": [1, 2, 4, 8], "B": [1, 2, 4, 8], "C": [0, 1]}, ["A * B == 8", "C == 0"])
    assert listing is not None
    assert listing.neighbours(0).tolist() == [1, 2, 3]
    alone = enumerate_valid({"A": [1, 2]}, ["A == 2"])
    assert alone is not None and alone.neighbours(0).tolist() == []


def _only_whole(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Chance finds nothing from settings that are not whole."""
    return lambda group, rows, rng, count: (
        draw(group, rows, rng, count) if rows.shape[1] == len(group.knobs) else []
    )


class TestDrawn:
    def test_each_valid_setting_is_as_likely_as_any_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start = knobs(
            "A: {type: int, low: 0, high: 5, default: 0}\n"
            "B: {type: choice, choices: [x, y, 3], default: x}\n"
            "C: {type: int, low: 0, high: 5, default: 0, requires: [A + C < 4, \"B != 'y' or A == 0\"]}\n"
            "D: {type: bool, default: false}\n"
        )
        monkeypatch.setattr(unlisted, "_MAX_PREFIXES", 10)
        unlisted._random_configs.cache_clear()
        space = landscape(start)
        every = product(range(6), ("x", "y", 3), range(6), (False, True))
        valid = {values for values in every if space.allows(dict(zip(start, values, strict=True)))}
        counted: Counter[tuple[object, ...]] = Counter()
        for seed in range(4):
            counted.update(
                tuple(found[name] for name in start) for found in drawn(space, random.Random(seed))
            )
        unlisted._random_configs.cache_clear()
        assert set(counted) == valid
        expected = counted.total() / len(valid)
        assert sum((count - expected) ** 2 / expected for count in counted.values()) < 2 * len(valid)
        assert all(type(found[3]) is bool and type(found[0]) is int for found in counted)

    def test_where_chance_finds_none_they_are_nearly_as_likely(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start = knobs(
            "".join(f"{name}: {{type: int, low: 0, high: 5, default: 0}}\n" for name in "ABC")
            + "D: {type: int, low: 0, high: 5, default: 0, requires: [A <= B, B <= C, C <= D, A + D != 5]}\n"
        )
        monkeypatch.setattr(unlisted, "_MAX_PREFIXES", 10)
        monkeypatch.setattr(unlisted._Group, "_drawn_from", _only_whole(unlisted._Group._drawn_from))
        unlisted._random_configs.cache_clear()
        space = landscape(start)
        every = product(range(6), repeat=4)
        valid = {values for values in every if space.allows(dict(zip(start, values, strict=True)))}
        counted: Counter[tuple[object, ...]] = Counter()
        for seed in range(6):
            counted.update(tuple(found.values()) for found in drawn(space, random.Random(seed)))
        unlisted._random_configs.cache_clear()
        assert set(counted) == valid
        expected = counted.total() / len(valid)
        assert sum((count - expected) ** 2 / expected for count in counted.values()) < 2 * len(valid)

    @pytest.mark.slow(3, but=["pairs"])
    @pytest.mark.parametrize("kind", ["pairs", "ascending", "dividing", "different"])
    def test_sparse_at_every_depth(self, kind: str) -> None:
        size, high, start_at, constraints = {
            "pairs": (6, 1000, 1, ["K0 == K1", "K2 == K3", "K4 == K5", "K0 + K2 + K4 > 2"]),
            "ascending": (10, 100, 0, [f"K{i} < K{i + 1}" for i in range(9)]),
            "dividing": (10, 512, 1, [f"K{i + 1} % K{i} == 0" for i in range(9)]),
            "different": (12, 12, 0, [f"K{i} != K{j}" for i in range(12) for j in range(i)]),
        }[kind]
        lines = [
            f"K{i}: {{type: int, low: 1, high: {high}, default: {start_at or i + 1}}}" for i in range(size)
        ]
        lines[-1] = lines[-1].replace("}", f", requires: [{', '.join(constraints)}]}}")
        space = landscape(knobs("\n".join(lines) + "\n"))
        found = list(islice(drawn(space, random.Random(1)), 40))
        assert all(map(space.allows, found))
        assert len({tuple(one.values()) for one in found}) > 30

    def test_floats_are_drawn_where_constraints_allow_them(self) -> None:
        start = knobs(
            "F: {type: float, low: 0.001, high: 1.0, log: true, default: 0.5}\n"
            "N: {type: int, low: 1, high: 1000, default: 1, requires: [F * N <= 1, F * N > 0.4]}\n"
        )
        found = list(drawn(landscape(start), random.Random(1)))
        assert len(found) > 500
        assert all(0.4 < float(one["F"]) * float(one["N"]) <= 1 for one in found)
        assert min(float(one["F"]) for one in found) < 0.01 and max(float(one["F"]) for one in found) > 0.3

    def test_one_in_a_hundred_million_is_drawn_where_prefixes_lead_to_it(self) -> None:
        total = " + ".join([*(f"K{i}" for i in range(12)), "LAST"])
        last = f"LAST: {{type: int, low: 0, high: 9, default: 9, requires: ['{total} >= 112']}}\n"
        start = knobs(WIDE.replace("default: 0", "default: 9") + last)
        found = list(drawn(landscape(start), random.Random(1)))
        assert found and all(sum(map(int, one.values())) >= 112 for one in found)


class TestNear:
    def test_one_knob_is_turned_and_then_two(self) -> None:
        start = knobs(SPARSE)
        found = list(near(landscape(start), random.Random(1)))
        incumbent = {name: knob.default for name, knob in start.items()}
        apart = [sum(one[name] != incumbent[name] for name in one) for one in found]
        assert apart == [2] * len(found)  # a product that is given leaves no room for one alone
        listing = list_valid(start)
        assert listing is not None
        [at] = listing.find_rows([incumbent])
        expected = np.flatnonzero((listing.rows != listing.rows[at]).sum(axis=1) == 2)
        assert sorted(listing.find_rows(found).tolist()) == expected.tolist()

    def test_without_constraints_one_comes_before_two(self) -> None:
        start = knobs(WIDE)
        found = near(landscape(start), random.Random(2))
        apart = [sum(value != 0 for value in next(found).values()) for _ in range(12 * 9 + 5)]
        assert apart == [1] * (12 * 9) + [2] * 5


class TestEnd:
    def test_where_nothing_is_found_by_chance_the_end_is_told_for_what_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = knobs("A: {type: int, low: 0, high: 9, default: 3, requires: [A == 3]}\n")
        monkeypatch.setattr("hillclimb.agent.sweep.landscape.list_valid", lambda knobs: None)
        with pytest.raises(Plateau) as ended:
            SweepProposer(start, 1).propose(open_ledger(tmp_path))
        assert str(ended.value) == NOT_LISTED

    def test_the_list_is_used_up_only_when_all_was_tried(self, tmp_path: Path) -> None:
        start = knobs(
            "A: {type: int, low: 0, high: 999, default: 500, requires: [A + B == 1000]}\n"
            "B: {type: int, low: 0, high: 999, default: 500}\n"
            "C: {type: int, low: 0, high: 999, default: 0, requires: [A * 1000 + C == 500000]}\n"
        )
        ledger, sweep = open_ledger(tmp_path), SweepProposer(start, 1)
        assert list_valid(start) is not None
        assert climb(ledger, sweep, start, lambda c: 0.9, 10) == 0  # the defaults are the only valid setting
        assert sweep.propose(ledger) is None

    def test_a_wide_space_goes_on(self, tmp_path: Path) -> None:
        start, ledger = knobs(WIDE), open_ledger(tmp_path)
        assert list_valid(start) is None
        assert climb(ledger, SweepProposer(start, 1), start, lambda c: 0.9, 15) == 15
        assert all(isinstance(c.proposal, Proposal) for c in ledger.candidates)
