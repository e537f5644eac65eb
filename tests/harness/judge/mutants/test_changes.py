"""What the single mistakes do to tensors, of every dtype that they are made on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.judge.mutants.spoiled_inputs import (
    RARE_SHARE,
    SAMPLED_ELEMENTS,
    off_by_one,
    within_sample,
    without_rare_values,
)
from hillclimb.harness.judge.mutants.wrong_outputs import half_one_lower, mean_everywhere, rolled, stale_end

DTYPES = [getattr(torch, name) for name in sorted(TORCH_DTYPES) if "complex" not in name]
"""Outputs are of these."""
FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]
INTEGERS = [d for d in DTYPES if not d.is_floating_point and d is not torch.bool]
lists = st.lists(st.integers(0, 100), min_size=1, max_size=30)


@pytest.mark.parametrize("dtype", DTYPES)
@given(values=lists)
def test_rolled_there_and_back(dtype: torch.dtype, values: list[int]) -> None:
    tensor = torch.tensor(values).to(dtype)
    moved = rolled(tensor, 0)
    assert moved.dtype == dtype
    assert moved.tolist() == tensor[-1:].tolist() + tensor[:-1].tolist()


@pytest.mark.parametrize("dtype", INTEGERS)
@given(values=lists)
def test_an_index_off_by_one_stays_within_its_range(dtype: torch.dtype, values: list[int]) -> None:
    found = off_by_one(torch.tensor(values).to(dtype))
    assert found.dtype == dtype
    assert found.tolist() == [min(values) if v == max(values) else v + 1 for v in values]


def test_the_largest_index_there_is_does_not_overflow() -> None:
    top, bottom = torch.iinfo(torch.int64).max, torch.iinfo(torch.int64).min
    assert off_by_one(torch.tensor([top, bottom, 0])).tolist() == [bottom, bottom + 1, 1]


@pytest.mark.parametrize("dtype", INTEGERS)
@given(values=lists)
def test_half_of_the_elements_are_one_lower(dtype: torch.dtype, values: list[int]) -> None:
    lowest = torch.iinfo(dtype).min
    found = half_one_lower(torch.tensor(values).to(dtype))
    assert found.dtype == dtype
    assert found.tolist() == [
        max(v - 1, lowest) if i % 2 == len(values) % 2 else v for i, v in enumerate(values)
    ]


@pytest.mark.parametrize("dtype", FLOATS)
@given(seed=st.integers(0, 1000), count=st.integers(1, 5000))
def test_few_rare_values_are_cut_off_and_never_none(dtype: torch.dtype, seed: int, count: int) -> None:
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = without_rare_values(tensor)
    assert found.dtype == dtype
    changed = (found.double() != tensor.double()).nonzero().flatten()
    assert len(changed) <= max(1, 2 * int(count * RARE_SHARE))
    wide = tensor.double()
    if len(changed):
        kept = torch.ones(count, dtype=torch.bool).index_fill_(0, changed, False)
        assert wide[kept].min() <= found.double().min() and found.double().max() <= wide[kept].max()
    elif count > 1 and dtype.itemsize > 2:
        raise AssertionError("random numbers have an extreme one")


@pytest.mark.parametrize("dtype", FLOATS)
@given(seed=st.integers(0, 1000), count=st.integers(1, 300))
def test_a_sample_shows_a_part_of_the_range(dtype: torch.dtype, seed: int, count: int) -> None:
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = within_sample(tensor)
    assert found.dtype == dtype
    if count <= SAMPLED_ELEMENTS:
        assert torch.equal(found.double(), tensor.double())
    is_kept = found.double() == tensor.double()
    assert int(is_kept.sum()) >= 1
    kept = tensor.double()[is_kept]
    assert bool(((found.double() >= kept.min()) & (found.double() <= kept.max())).all())


@pytest.mark.parametrize("spoil", [within_sample, without_rare_values])
def test_what_is_not_finite_stays(spoil: object) -> None:
    assert callable(spoil)
    odd = torch.full((40,), float("nan"))
    assert bool(spoil(odd).isnan().all())
    odd[:20] = torch.arange(20.0)
    assert spoil(odd).isnan().tolist() == odd.isnan().tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mean_is_one_value(dtype: torch.dtype) -> None:
    found = mean_everywhere(torch.tensor([[0, 1], [1, 1]]).to(dtype))
    expected = 0.75 if dtype.is_floating_point else 1
    assert found.dtype == dtype
    assert (found.double() == expected).all() and found.shape == (2, 2)


def test_the_mean_of_no_finite_number_is_zero() -> None:
    assert mean_everywhere(torch.tensor([float("inf")])).tolist() == [0.0]


def test_the_end_alone_is_stale() -> None:
    assert stale_end(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 2, dtype=torch.int64)).tolist() == [
        [1, 2],
        [0, 0],
    ]
