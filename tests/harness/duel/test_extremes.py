"""Inputs at the ends of their domains, at places where they meet."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.duel.extremes import at_ends

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
WHOLE = [torch.int8, torch.uint8, torch.int16, torch.int64]
INT16 = (-(2**15), 2**15 - 1)


def many(inputs: Tensors, domain: tuple[float, float], count: int = 400) -> list[Tensors]:
    domains = dict.fromkeys(inputs, domain)
    return [at_ends(inputs, domains, list(inputs), random.Random(seed)) for seed in range(count)]


def whole_numbers(*shape: int) -> torch.Tensor:
    return torch.randint(2, 99, shape, generator=torch.Generator().manual_seed(1), dtype=torch.int16)


def test_every_two_ends_meet_in_a_product() -> None:
    """Of a and b, at two places side by side of the size that they share."""
    found = many({"a": whole_numbers(5, 12), "b": whole_numbers(12, 7)}, INT16)
    for one in INT16:
        for other in INT16:
            meet = [
                new
                for new in found
                if any(
                    bool((new["a"][:, k : k + 2] == one).all() and (new["b"][k : k + 2] == other).all())
                    for k in range(0, 12, 2)
                )
            ]
            assert len(meet) > len(found) / 60, (one, other)


def test_elsewhere_the_values_stay_or_are_0_or_1() -> None:
    own = whole_numbers(40)
    found = [new["x"] for new in many({"x": own}, INT16)]
    left = [x[(x != INT16[0]) & (x != INT16[1])] for x in found]
    assert all(len(part) for part in left), "no two calls are all at the same end"
    are_few = [bool((part <= 1).all()) for part in left]
    assert len(found) / 3 < sum(are_few) < len(found) * 2 / 3
    assert all(few or bool(torch.isin(part, own).all()) for few, part in zip(are_few, left, strict=True))


def test_a_vector_without_the_size_is_at_one_end_wholly() -> None:
    found = many({"x": whole_numbers(4, 9), "y": whole_numbers(5)}, INT16)
    assert any(len({*new["y"].tolist()}) == 1 and len({*new["x"].flatten().tolist()}) > 1 for new in found)


def test_only_what_is_able_is_changed() -> None:
    own = {"x": whole_numbers(9), "y": whole_numbers(9)}
    found = at_ends(own, {"x": INT16}, ["x"], random.Random(1))
    assert found["y"] is own["y"]
    assert not torch.equal(found["x"], own["x"])


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ((-1000.0, 1000.0), {-512.0, 512.0}),
        ((0.0, 1e30), {0.0, 2.0**99}),
        ((0.75, 0.9), {0.75, 0.9}),
        ((3.0, 100.0), {3.0, 64.0}),
    ],
)
def test_floats_are_at_powers_of_two_where_the_domain_has_one(
    domain: tuple[float, float], expected: set[float]
) -> None:
    own = torch.full((30,), 0.8, dtype=torch.float64).clamp(*domain)
    left = {0.0, 1.0, float(own[0])} if domain[0] <= 0 else {float(own[0])}
    values = {value for new in many({"x": own}, domain) for value in new["x"].tolist()}
    assert expected <= values <= expected | left


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(lambda shape: math.prod(shape) > 1),
    st.sampled_from([*FLOATS, *WHOLE]),
    st.sampled_from([(-100.0, 100.0), (0.0, 5.0), (0.5, 20.0), (-7.0, -1.0), (-1e300, 1e300)]),
    st.integers(0, 10**6),
    st.booleans(),
)  # fmt: skip
def test_all_of_it_is_in_the_domain_and_like_the_input(
    shape: list[int], dtype: torch.dtype, domain: tuple[float, float], seed: int, is_permuted: bool
) -> None:
    kind = torch.iinfo(dtype) if dtype in WHOLE else torch.finfo(dtype)
    low, high = max(domain[0], float(kind.min)), min(domain[1], float(kind.max))
    if low > high:
        return
    inside = max(math.ceil(low), -(2**31)) if dtype in WHOLE else low
    own = torch.full(shape, inside, dtype=torch.float64).to(dtype)
    if is_permuted:
        own = own.permute(*reversed(range(len(shape))))
    found = at_ends({"x": own}, {"x": domain}, ["x"], random.Random(seed))["x"]
    assert (found.shape, found.dtype, found.stride()) == (own.shape, own.dtype, own.stride())
    values = found.double()
    assert bool(((values >= low) & (values <= high)).all())
