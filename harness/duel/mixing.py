"""Mixes inputs: values of another distribution, and of all of an input's domain, stand among ordinary ones.

Which elements they are is secret, so a kernel cannot tell from a sample of an input what the rest of it holds. Only
floats are mixed, and only finite ones stand in for finite ones: whole numbers are places, lengths and choices.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.duel.process.arena import WORDS

RARE_COUNTS = (1, 2, 4, 8)
"""How many elements are replaced one by one."""

DECADES = 8.0
"""Powers of ten below the largest value of a domain that holds 0 in which rare values are drawn."""


def mix(contract: Contract, inputs: Tensors, donor: Tensors | None, secret: random.Random) -> Tensors:
    """These inputs with some elements of `donor`, a draw of the same problem, and of `contract.domains`.

    Tensors that are not changed are handed back as they are; the others are new.
    """
    ways = {name: _ways(contract, name, donor) for name, tensor in inputs.items() if _is_mixable(tensor)}
    able = [name for name, found in ways.items() if found]
    if not able:
        return inputs
    mixed = dict(inputs)
    for name in secret.sample(able, secret.randint(1, len(able))):
        mixed[name] = secret.choice(ways[name])(inputs[name], secret)
    return mixed


def can_mix(contract: Contract) -> bool:
    """Whether anything may be mixed into its inputs."""
    return bool(contract.domains) or (not contract.unmixed and len(contract.distributions) > 1)


Way = Callable[[torch.Tensor, random.Random], torch.Tensor]


def _ways(contract: Contract, name: str, donor: Tensors | None) -> list[Way]:
    """How elements of this input may be replaced."""
    ways: list[Way] = []
    if donor is not None:
        other = donor[name]
        ways += [
            lambda tensor, secret: _with_box(tensor, other, secret),
            lambda tensor, secret: _with_elements(tensor, other, secret),
        ]
    if name in contract.domains:
        low, high = contract.domains[name]
        ways.append(lambda tensor, secret: _with_rare_values(tensor, low, high, secret))
    return ways


def _is_mixable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 1


def _with_box(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """A box of the donor's at the same place; in each dimension small lengths are as likely as large ones."""
    box = []
    for size in tensor.shape:
        length = max(1, size >> secret.randrange(size.bit_length()))
        start = secret.randint(0, size - length)
        box.append(slice(start, start + length))
    return _replaced(tensor, tuple(box), donor[tuple(box)])


def _with_elements(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> torch.Tensor:
    places = _places(tensor, secret)
    return _replaced(tensor, places, donor[places])


def _with_rare_values(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> torch.Tensor:
    places = _places(tensor, secret)
    most = float(torch.finfo(tensor.dtype).max)
    values = [min(max(_rare_value(low, high, secret), -most), most) for _ in range(len(places[0]))]
    return _replaced(tensor, places, torch.tensor(values, device=tensor.device).to(tensor.dtype))


def _rare_value(low: float, high: float, secret: random.Random) -> float:
    """An end of the domain, 0, or a value whose magnitude is drawn from a logarithmic scale."""
    if low <= 0 <= high:
        ends = [low, high, 0.0]
        bound = secret.choice([end for end in (low, high) if end])
        return secret.choice([*ends, *[bound * 10 ** -secret.uniform(0, DECADES)] * len(ends)])
    small, large = sorted((abs(low), abs(high)))
    drawn = math.copysign(math.exp(secret.uniform(math.log(small), math.log(large))), low)
    return secret.choice([low, high, drawn, drawn])


def _places(tensor: torch.Tensor, secret: random.Random) -> tuple[torch.Tensor, ...]:
    """Indices of a few elements, one tensor a dimension; no element twice."""
    count = min(secret.choice(RARE_COUNTS), tensor.numel())
    flat = torch.tensor(secret.sample(range(tensor.numel()), count), device=tensor.device)
    return torch.unravel_index(flat, tensor.shape)


def _replaced(
    tensor: torch.Tensor, where: tuple[slice, ...] | tuple[torch.Tensor, ...], values: torch.Tensor
) -> torch.Tensor:
    """A copy with other values there, wherever both the old and the new one are finite."""
    mixed = tensor.clone()
    # torch selects among whole numbers where it cannot among floats of one byte
    words = WORDS[tensor.dtype.itemsize]
    old = mixed[where]
    usable = _is_finite(old) & _is_finite(values)
    mixed.view(words)[where] = torch.where(
        usable, values.contiguous().view(words), old.contiguous().view(words)
    )
    return mixed


def _is_finite(tensor: torch.Tensor) -> torch.Tensor:
    """By element; of float8 torch cannot tell that itself."""
    return torch.isfinite(tensor.float() if tensor.dtype.itemsize == 1 else tensor)
