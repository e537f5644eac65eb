"""What is learnt of measured times: a law that the cost model does not have, told for sizes that were not measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points, refusal
from hillclimb.harness.gemm.portfolio.between import with_shapes_between
from hillclimb.harness.gemm.portfolio.choosing import Wish, choose_kernels
from hillclimb.harness.gemm.portfolio.learned import LEAST_TIMES, KnownWay, LearnedTimes, known_ways
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.portfolio.prediction import MeasuredWeight, fastest_spans
from hillclimb.harness.gemm.portfolio.selection import Matrix, efficiencies
from hillclimb.harness.gemm.providers.ways import MOST_WASTE, fits, is_for, run_options, way_seconds
from hillclimb.harness.gemm.shape import GemmShape

POINTS = [one for one in chosen_points("warpgroup_gemm", "flexible", "bf16") if not refusal(one)][::16]
WEIGHTS = [(4096, 4096), (2560, 5120), (14336, 4096)]
MEASURED = [1 << at for at in range(13)]
BETWEEN = [3 << at for at in range(11)]


def law(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> float:
    """Seconds: blocks that share what they bring win, short tiles lose, and both the more, the more tokens."""
    rows, columns, _ = point.tile
    off = 0.2 * (option.cluster == (1, 1)) - 0.3 * (min(rows, columns) >= 96) + 0.2 * option.is_persistent
    return way_seconds(point, option, shape) * exp(off * log(1 + shape.m) / 8)


def shapes(ms: list[int]) -> list[GemmShape]:
    return [GemmShape(f"m{m}_n{n}", m, n, k, "bf16") for n, k in WEIGHTS for m in ms]


def names() -> list[str]:
    """Of every way that is worth a look for some measured shape."""
    found: dict[str, None] = {}
    for shape in shapes(MEASURED):
        for point in POINTS:
            options = run_options(point, shape, waste=MOST_WASTE)
            found |= {f"generated:{way_name(point, option)}": None for option in options}
    return list(found)


NAMES = names()
WAYS = [way for way in known_ways(NAMES) if way]


def seconds(of: list[GemmShape]) -> Matrix:
    """Of shapes x ways, by the law, of those worth a look."""
    return np.array(
        [
            [law(*way, shape) if fits(*way, shape, MOST_WASTE) else np.nan for way in WAYS]  # type: ignore[arg-type]
            for shape in of
        ]
    )


@pytest.fixture(scope="module")
def learned() -> LearnedTimes:
    """From the measured shapes."""
    return LearnedTimes(shapes(MEASURED), NAMES, seconds(shapes(MEASURED)))


def test_times_between_measured_ones_follow_the_law_and_not_the_model(learned: LearnedTimes) -> None:
    assert np.count_nonzero(~np.isnan(seconds(shapes(MEASURED)))) > LEAST_TIMES
    off, model_off = [], []
    for shape, own in zip(shapes(BETWEEN), seconds(shapes(BETWEEN)), strict=True):
        there = ~np.isnan(own)
        expected = learned.logs(WAYS, shape)[there]
        model = np.log([way_seconds(*way, shape) for way in WAYS])[there]
        off.extend(abs(expected - np.log(own[there])))
        model_off.extend(abs(model - np.log(own[there])))
    assert np.mean(off) < 0.02 < 0.08 < np.mean(model_off)


def test_what_is_chosen_between_measured_sizes_is_near_the_best(learned: LearnedTimes) -> None:
    """Also ways that no measured size has: they waste too much there."""
    for n, k in WEIGHTS:
        own = [shape for shape in shapes(MEASURED) if (shape.n, shape.k) == (n, k)]
        spans = fastest_spans(MeasuredWeight(own, NAMES, seconds(own), learned))
        for m in BETWEEN:
            shape = GemmShape("", m, n, k, "bf16")
            way = [span for span in spans if span.start <= m][-1].way
            best = np.nanmin(seconds([shape]))
            assert law(*WAYS[way], shape) < 1.05 * best, f"{NAMES[way]} at m {m}"  # type: ignore[arg-type]


def test_a_way_without_a_time_is_sure_where_it_is_worth_a_look_and_nowhere_else(
    learned: LearnedTimes,
) -> None:
    wanted = [[fits(*way, shape, MOST_WASTE) for way in WAYS] for shape in shapes([1, 96])]  # type: ignore[arg-type]
    assert [learned.are_sure(WAYS, shape).tolist() for shape in shapes([1, 96])] == wanted
    assert all(any(row) and not all(row) for row in wanted)
    unknown = known_ways(["cutlass:a", "cublas"])
    assert unknown == [None, None]
    assert not learned.are_sure(unknown, shapes([96])[0]).any()
    assert learned.logs(unknown, shapes([96])[0]).tolist() == [0, 0]


def test_the_same_times_teach_the_same(learned: LearnedTimes) -> None:
    again = LearnedTimes(shapes(MEASURED), NAMES, seconds(shapes(MEASURED)))
    shape = shapes([768])[0]
    assert again.logs(WAYS, shape).tolist() == learned.logs(WAYS, shape).tolist()


def test_few_times_teach_nothing() -> None:
    own = shapes([64])[:1]
    few = LearnedTimes(own, NAMES, seconds(own))
    assert few.logs(WAYS, own[0]) == pytest.approx([log(way_seconds(*way, own[0])) for way in WAYS])
    assert not few.are_sure(WAYS, own[0]).any()


def test_without_scikit_learn_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    own = shapes(MEASURED)
    with pytest.raises(UsageError, match=r"scikit-learn.*pip install 'hillclimb\[gemm\]'"):
        LearnedTimes(own, NAMES, seconds(own))


def portfolio(ms: list[int]) -> Portfolio:
    """Of all weights."""
    times = seconds(shapes(ms))
    return Portfolio(tuple(shapes(ms)), tuple(NAMES), times, np.zeros_like(times))


def test_shapes_between_have_the_efficiencies_of_the_law() -> None:
    found, measured = with_shapes_between(portfolio(MEASURED)), portfolio(MEASURED)
    assert found.shapes[: len(measured.shapes)] == measured.shapes
    assert np.array_equal(found.ranked[: len(measured.shapes)], measured.ranked, equal_nan=True)
    between = found.shapes[len(measured.shapes) :]
    halfway = [3, 6, 11, 23, 45, 91, 181, 362, 724, 1448, 2896]
    assert {(one.n, one.k, one.m) for one in between} == {(n, k, m) for n, k in WEIGHTS for m in halfway}
    assert len({one.name for one in found.shapes}) == len(found.shapes)
    expected = found.rows([at >= len(measured.shapes) for at in range(len(found.shapes))])
    for own, row in zip(efficiencies(seconds(list(between))), expected.way_efficiency, strict=True):
        assert np.mean(abs(own - row)[(own > 0) & (row > 0)]) < 0.03


def test_a_choice_serves_shapes_between_measured_ones() -> None:
    """Two kernels, chosen for powers of eight, and told for what lies between them."""
    one, between = portfolio(MEASURED[::3]), portfolio(BETWEEN)
    told: list[str] = []
    choice = choose_kernels(one, Wish(count=2), show=told.append)
    stages = ["choosing of 19 kernels for 15 shapes", "making the dispatch"]
    assert told == [f"learning from {np.count_nonzero(~np.isnan(one.ranked))} times", *stages]
    chosen = [one.kernels.index(name) for name in choice.kernels]
    alone = one.selector().best(2).kernels
    assert between.reached(chosen).mean() > between.reached(alone).mean()
    called = choose_kernels(one, Wish(count=2), np.ones(len(one.shapes)), show=told.append)
    assert told[3:] == stages
    assert called.kernels == tuple(one.kernels[kernel] for kernel in alone), (
        "only shapes that are called count"
    )


def test_a_weight_gets_kernels_of_its_own_dtype_and_kind() -> None:
    """bf16 and fp8 by the same law, and products of experts with too few times to learn from."""
    fp8 = [replace(shape, dtype="fp8", name=f"fp8_{shape.name}") for shape in shapes(MEASURED)]
    experts = [GemmShape(f"experts{m}", m, 4096, 4096, "bf16", 8) for m in (64, 4096)]
    grouped = next(one for one in chosen_points("grouped_gemm", "hopper", "bf16") if not refusal(one))
    every = [*shapes(MEASURED), *fp8, *experts]
    ways = [*WAYS, *((as_fp8(point), option) for point, option in WAYS), (grouped, RunOption(raster=1))]
    times = np.array([[seconds_for(way, shape) for way in ways] for shape in every])
    times[-2:, -1] = 1.0
    names = tuple(f"generated:{way_name(*way)}" for way in ways)
    found = choose_kernels(
        Portfolio(tuple(every), names, times, np.zeros_like(times)), Wish(count=6)
    ).dispatch
    for known in found.known:
        chosen = [way[0] for way in known_ways([found.kernels[at] for at in known.chosen]) if way]
        assert {(one.dtype, one.is_grouped) for one in chosen} == {(known.dtype, known.groups > 1)}
    assert {(known.dtype, known.groups) for known in found.known} == {("bf16", 1), ("fp8", 1), ("bf16", 8)}


def seconds_for(way: KnownWay, shape: GemmShape) -> float:
    """By the law; NaN for what is of another dtype or kind, or not worth a look."""
    is_there = is_for(way[0], shape) and fits(*way, shape, MOST_WASTE)  # type: ignore[arg-type]
    return law(*way, shape) if is_there else np.nan  # type: ignore[arg-type]


def as_fp8(point: AnyPoint) -> AnyPoint:
    """The same tile, as long along K in bytes."""
    rows, columns, inner = point.tile
    return point.model_copy(update={"dtype": "fp8", "tile": (rows, columns, 2 * inner)})


def test_ways_without_a_time_get_what_the_others_of_their_weight_are_off_by(learned: LearnedTimes) -> None:
    """All times of one weight are twice the law's: so are those expected of its ways without a time."""
    n, k = WEIGHTS[0]
    own = [shape for shape in shapes([64, 256]) if (shape.n, shape.k) == (n, k)]
    times = 2 * seconds(own)
    shape = replace(own[0], m=128)
    both = np.flatnonzero(~np.isnan(times).any(axis=0))
    lacking = both[::2]
    full = MeasuredWeight(own, NAMES, times, learned).expected_logs(128)
    times[:, lacking] = np.nan
    found = MeasuredWeight(own, NAMES, times, learned).expected_logs(128)
    sure = [at for at in lacking if fits(*WAYS[at], shape, MOST_WASTE)]  # type: ignore[arg-type]
    assert len(sure) > 20 and abs(found[sure] - full[sure]).max() < 0.1 < log(2)


def test_too_few_times_tell_of_no_shapes_between() -> None:
    many = portfolio(MEASURED)
    few = Portfolio(many.shapes, many.ways[:20], many.milliseconds[:, :20], many.spread[:, :20])
    assert np.count_nonzero(~np.isnan(few.ranked)) < LEAST_TIMES
    assert with_shapes_between(few) is few
