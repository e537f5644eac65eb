"""Selection: equal to brute force, and to what is known of a witness."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.selection import Matrix, Selector, efficiencies

WITNESS = np.array([[1, 1, 1], [0.5, 0.5, 1], [0.5, 1, 0.5], [1, 0.5, 1]])
"""Three intervals cover it in a row's order, two kernels suffice."""


def selector(efficiency: Matrix, **more: object) -> Selector:
    return Selector(efficiency, [f"s{row}" for row in range(len(efficiency))], **more)  # type: ignore[arg-type]


def instance(seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 2, (rng.integers(1, 8), rng.integers(1, 8)))
    seconds[rng.random(seconds.shape) < 0.2] = np.nan
    seconds[np.isnan(seconds).all(axis=1), 0] = 1.0
    return efficiencies(np.round(seconds, rng.integers(1, 4)))


def mean_of(efficiency: Matrix, kernels: tuple[int, ...], weights: Matrix | None = None) -> float:
    return float(np.average(efficiency[:, kernels].max(axis=1), weights=weights))


def sets(kernels: int, most: int) -> list[tuple[int, ...]]:
    return [chosen for size in range(1, most + 1) for chosen in combinations(range(kernels), size)]


def test_the_witness_takes_two() -> None:
    found = selector(WITNESS).cover(0.9)
    assert found.kernels == (1, 2)
    assert (found.mean, found.worst) == (1.0, 1.0)


@pytest.mark.parametrize("part", range(4))
def test_covers_are_as_small_as_brute_force_finds(part: int) -> None:
    """200 random instances; of the smallest covers the one that is best in the mean."""
    for seed in range(50 * part, 50 * part + 50):
        efficiency, threshold = instance(seed), [0.8, 0.9, 0.98][seed % 3]
        covers = [c for c in sets(efficiency.shape[1], 8) if efficiency[:, c].max(axis=1).min() >= threshold]
        least = len(covers[0])
        found = selector(efficiency).cover(threshold)
        assert len(found.kernels) == least, seed
        assert found.worst >= threshold
        assert found.gap == 0.0
        assert found.mean == pytest.approx(max(mean_of(efficiency, c) for c in covers if len(c) == least))


@pytest.mark.parametrize("part", range(4))
def test_the_best_of_so_many_are_what_brute_force_finds(part: int) -> None:
    for seed in range(50 * part, 50 * part + 50):
        efficiency = instance(seed)
        weights = np.random.default_rng(seed).uniform(0.1, 3, len(efficiency))
        for number in (1, 2, 3):
            best = max(mean_of(efficiency, c, weights) for c in sets(efficiency.shape[1], number))
            found = selector(efficiency, weights=weights).best(number)
            assert found.mean == pytest.approx(best), (seed, number)
            assert found.mean == pytest.approx(mean_of(efficiency, found.kernels, weights))
            assert len(found.kernels) <= number


@given(st.integers(0, 10**6), st.data())
@settings(deadline=None, max_examples=60)
def test_required_kernels_are_there_and_forbidden_ones_are_not(seed: int, data: st.DataObject) -> None:
    efficiency = instance(seed)
    kernels = range(efficiency.shape[1])
    required = data.draw(st.frozensets(st.sampled_from(kernels), max_size=2))
    forbidden = data.draw(st.frozensets(st.sampled_from(kernels), max_size=2)) - required
    allowed = [k for k in kernels if k not in forbidden]
    if not allowed or (efficiency[:, allowed].max(axis=1) == 0).any():
        with pytest.raises(UsageError, match="no kernel runs s"):
            selector(efficiency, required=required, forbidden=forbidden)
        return
    found = selector(efficiency, required=required, forbidden=forbidden).best(len(required) + 1)
    assert required <= set(found.kernels) <= set(allowed)
    known = [c for c in sets(len(kernels), len(required) + 1) if required <= set(c) <= set(allowed)]
    assert found.mean == pytest.approx(max(mean_of(efficiency, c) for c in known))


def test_the_curve_rises_to_one_and_ends_there() -> None:
    efficiency = instance(7)
    found = selector(efficiency).curve(20)
    means = [one.mean for one in found]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(1.0)
    assert len(found) <= efficiency.shape[1]
    assert [len(one.kernels) for one in found] == sorted({len(one.kernels) for one in found})


def test_a_weight_of_a_shape_counts_as_so_many_shapes() -> None:
    efficiency = np.array([[1, 0.5], [0.5, 1], [0.5, 1]])
    assert selector(efficiency).best(1).kernels == (1,)
    assert selector(efficiency, weights=np.array([3.0, 1, 1])).best(1).kernels == (0,)


def test_what_is_within_the_noise_of_the_threshold_serves() -> None:
    efficiency = np.array([[1, 0.975], [0.5, 1]])
    assert selector(efficiency).cover(0.98).kernels == (0, 1)
    assert selector(efficiency).cover(0.98, noise=0.01).kernels == (1,)
    noise = np.array([[0, 0.001], [0.0, 0]])
    assert selector(efficiency).cover(0.98, noise).kernels == (0, 1)


def test_nothing_is_rounded_before_the_threshold() -> None:
    efficiency = np.array([[1, 0.9799], [0.97, 1]])
    assert selector(efficiency).cover(0.98).kernels == (0, 1)


def test_what_was_not_measured_serves_nobody() -> None:
    found = efficiencies(np.array([[2.0, np.nan, 4.0], [np.nan, 3.0, np.inf]]))
    assert found.tolist() == [[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]


def test_a_shape_that_nothing_serves_is_told() -> None:
    with pytest.raises(UsageError, match="no kernel runs s1; leave it out, or allow more kernels"):
        selector(np.array([[1.0, 0.5], [0, 0]]))
    with pytest.raises(UsageError, match=r"no allowed kernel reaches 0\.9 of the best at s0"):
        selector(np.array([[1.0, 0.5]]), forbidden=frozenset({0})).cover(0.9)
    with pytest.raises(UsageError, match=r"s0, s1, s2 and 2 more;"):
        selector(np.zeros((5, 1)))
    with pytest.raises(UsageError, match="kernel 1 must be there and must not"):
        selector(WITNESS, required=frozenset({1}), forbidden=frozenset({1}))
    with pytest.raises(UsageError, match="1 kernels are fewer than the 2 that must be there"):
        selector(WITNESS, required=frozenset({1, 2})).best(1)


def test_what_the_time_did_not_suffice_for_is_told() -> None:
    rng = np.random.default_rng(3)
    hard = rng.uniform(0.5, 1, (60, 60))
    few = selector(hard / hard.max(axis=1, keepdims=True), seconds=1e-3)
    try:
        found = few.best(8)
    except UsageError as error:
        assert "no set of kernels was found in 0.001 s" in str(error)
    else:
        assert found.gap > 0
        assert len(found.kernels) <= 8
