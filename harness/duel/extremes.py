"""Inputs at the ends of their domains where they meet: a sum of few products may leave a dtype there alone."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.duel.structures import Domain, held, whole_ends

PAIR_SHARE = 0.5
"""How often the range is of two places only."""


def at_ends(
    inputs: Tensors, domains: Mapping[str, Domain], able: list[str], secret: random.Random
) -> Tensors:
    """These inputs, all of `able` at an end of their domain in one range of places along a size that they share.

    One that has no such size is so wholly. Every other time they are 0 or 1 elsewhere, where their domain holds that.
    Of more than two places one at the least is left: else many calls would have the same inputs.
    """
    size = secret.choice(sorted({size for name in able for size in inputs[name].shape if size > 1}))
    longest = max(min(size, 2), size - 1)
    length = min(longest, 2 if secret.random() < PAIR_SHARE else size >> secret.randrange(size.bit_length()))
    start, are_few = secret.randrange(size - length + 1), secret.random() < 0.5
    changed = dict(inputs)
    for name in able:
        low, high = domains[name]
        tensor = inputs[name].clone()
        if are_few and low <= 0 and high >= 1:
            tensor.copy_(tensor.double() > 0)
        along = [dim for dim, other in enumerate(tensor.shape) if other == size]
        part = tensor.narrow(secret.choice(along), start, length) if along else tensor
        part.copy_(_end(secret.random() < 0.5, tensor.dtype, (low, high)))
        changed[name] = tensor
    return changed


def _end(is_low: bool, dtype: torch.dtype, domain: Domain) -> torch.Tensor:
    """The lowest or the highest value. Of a float the power of two that is next to it inside: rounding many like values
    adds up otherwise."""
    if not dtype.is_floating_point:
        least, largest = whole_ends(dtype, domain)
        return torch.tensor(least if is_low else largest, dtype=dtype)
    low, high = domain
    most = float(torch.finfo(dtype).max)
    end = min(max(low if is_low else high, -most), most)
    mantissa, exponent = math.frexp(end)
    power = math.copysign(math.ldexp(0.5, exponent), mantissa) if end else 0.0
    return held(torch.tensor(power if low <= power <= high else end, dtype=torch.float64), dtype, domain)
