"""What right float32 sums lose, for contracts whose scale depends on it."""

from __future__ import annotations

import torch

PARTIAL_SUMS = 256
"""Of a long sum, how many a right kernel has at the least: a lane adds the terms of one, one after another."""

HALF_UNIT = 2.0**-24
"""Of a partial sum, what adding a small term to it may lose."""

SMALL_TERM_SHARE = 2.0**-19
"""Of the largest term: what is added to it loses a share that counts."""

LARGE_TERM_SHARE = 2.0**-4
"""Of the largest term: what outweighs small ones as it does."""

MIN_SHARE = 2.0**-3
"""Of all terms, the share that must be small: where few are, roundings up and down cancel."""


def absorbed(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """Of sums of terms that are not negative, what partial sums lose of small ones beside large ones; `dim` is kept.

    Of terms of one size nothing counts. One that is millions of times the others takes what its lane adds after it,
    and always downwards.
    """
    largest = terms.amax(dim, keepdim=True)
    partial = largest + terms.sum(dim, keepdim=True) / PARTIAL_SUMS
    is_small = terms < torch.maximum(SMALL_TERM_SHARE * largest, 2 * HALF_UNIT * partial)
    lost = torch.where(is_small, torch.minimum(terms, HALF_UNIT * partial), 0).sum(dim, keepdim=True)
    lanes = (terms > LARGE_TERM_SHARE * largest).sum(dim, keepdim=True) / PARTIAL_SUMS
    share = is_small.sum(dim, keepdim=True) / terms.shape[dim]
    return torch.where(share >= MIN_SHARE, lost * lanes.clamp_max(1), 0)
