"""What float32 sums lose of small terms beside large ones, against sums in partial sums that lose it."""

from __future__ import annotations

import pytest
import torch

from hillclimb.harness.case.contracts.sums import PARTIAL_SUMS, absorbed

COLUMNS = 1 << 18

ROUNDINGS = 8
"""Of the sum, in float32: what is lost anyway."""


def squares(seed: int) -> torch.Tensor:
    return torch.randn((2, COLUMNS), generator=torch.Generator().manual_seed(seed)).square_()


def lost(terms: torch.Tensor) -> torch.Tensor:
    """By partial sums, each of every so many-th term, that are added up exactly."""
    partial = torch.zeros((len(terms), PARTIAL_SUMS))
    for step in terms.unflatten(1, (-1, PARTIAL_SUMS)).unbind(1):
        partial += step
    return (partial.double().sum(1) - terms.double().sum(1)).abs()


@pytest.mark.parametrize("outweighing", [1e6, 5e6, 2e7, 5e7, 1e8, 1e9, 1e12])
@pytest.mark.parametrize("count", [1, 8, 300, 10_000])
def test_what_partial_sums_lose_is_allowed_for(outweighing: float, count: int) -> None:
    terms = squares(1)
    terms[:, 5 : 5 + count] = outweighing
    allowed = absorbed(terms.double(), 1)[:, 0] + ROUNDINGS * 2.0**-23 * terms.double().sum(1)
    assert bool((lost(terms) <= allowed).all())


def test_terms_of_one_size_lose_nothing() -> None:
    assert absorbed(squares(2).double(), 1).tolist() == [[0], [0]]
    assert absorbed(torch.zeros((1, 9), dtype=torch.float64), 1).tolist() == [[0]]


def test_no_more_is_lost_than_there_is() -> None:
    terms = squares(3).double()
    small = terms.sum(1, keepdim=True)
    terms[:, 0] = 1e30
    assert bool((absorbed(terms, 1) <= small / PARTIAL_SUMS).all())
