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
"""How many elements are replaced one by one, anywhere."""

LINE_COUNTS = (2, 4, 8, 16, 32)
"""How many, at most, where they lie in one line."""

ROUNDS = (1, 1, 2, 3)
"""How often elements of one input are replaced, one of these: what hides one thing may show with two."""

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
        mixed[name] = inputs[name].clone()
        for _ in range(secret.choice(ROUNDS)):
            secret.choice(ways[name])(mixed[name], secret)
    return mixed


def can_mix(contract: Contract) -> bool:
    """Whether anything may be mixed into its inputs."""
    return bool(contract.domains) or (not contract.unmixed and len(contract.distributions) > 1)


Way = Callable[[torch.Tensor, random.Random], None]
"""Replaces elements in place."""


def _ways(contract: Contract, name: str, donor: Tensors | None) -> list[Way]:
    """How elements of this input may be replaced."""
    ways: list[Way] = []
    if donor is not None:
        other = donor[name]
        ways += [
            lambda tensor, secret: _mix_in_box(tensor, other, secret),
            lambda tensor, secret: _mix_in_elements(tensor, other, secret),
        ]
    if name in contract.domains:
        low, high = contract.domains[name]
        ways.append(lambda tensor, secret: _mix_in_rare_values(tensor, low, high, secret))
    return ways


def _is_mixable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 1


def _mix_in_box(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    """A box of the donor's at the same place; in each dimension small lengths are as likely as large ones."""
    box = []
    for size in tensor.shape:
        length = max(1, size >> secret.randrange(size.bit_length()))
        start = _place(size - length + 1, secret)
        box.append(slice(start, start + length))
    _replace(tensor, tuple(box), donor[tuple(box)])


def _mix_in_elements(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    places = _on_device(_places(tensor, secret), tensor.device).unbind()
    _replace(tensor, places, donor[places])


def _mix_in_rare_values(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> None:
    places = _places(tensor, secret)
    most = float(torch.finfo(tensor.dtype).max)
    values = [min(max(_rare_value(low, high, secret), -most), most) for _ in range(places.shape[1])]
    drawn = _on_device(torch.tensor(values).to(tensor.dtype), tensor.device)
    _replace(tensor, _on_device(places, tensor.device).unbind(), drawn)


def _rare_value(low: float, high: float, secret: random.Random) -> float:
    """An end of the domain, 0, or a value drawn from a linear scale or, by its magnitude, from a logarithmic one."""
    even = secret.uniform(low, high)
    if low <= 0 <= high:
        bound = secret.choice([end for end in (low, high) if end])
        small = bound * 10 ** -secret.uniform(0, DECADES)
        return secret.choice([low, high, 0.0, even, even, even, small, small])
    least, largest = sorted((abs(low), abs(high)))
    drawn = math.copysign(math.exp(secret.uniform(math.log(least), math.log(largest))), low)
    return secret.choice([low, high, even, drawn])


def _places(tensor: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """Indices of a few elements, one row a dimension; no element twice.

    Every other time they lie in one line, a row say, since elements that are far apart seldom meet in a kernel.
    """
    if secret.random() < 0.5:
        flat = secret.sample(range(tensor.numel()), min(secret.choice(RARE_COUNTS), tensor.numel()))
        return torch.stack(torch.unravel_index(torch.tensor(flat), tensor.shape))
    along = secret.choice([dim for dim, size in enumerate(tensor.shape) if size > 1])
    line = [_place(size, secret) for size in tensor.shape]
    inside = sorted({_place(tensor.shape[along], secret) for _ in range(secret.choice(LINE_COUNTS))})
    return torch.tensor([inside if dim == along else [at] * len(inside) for dim, at in enumerate(line)])


def _on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy there of what is in the host's memory, made without waiting for what the device is at."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def _place(size: int, secret: random.Random) -> int:
    """An index: a multiple of 1, 2, 4 or any further power of two, for that is where samples are taken."""
    step = 1 << secret.randrange(size.bit_length())
    return secret.randrange(0, size, step)


def _replace(
    tensor: torch.Tensor, where: tuple[slice, ...] | tuple[torch.Tensor, ...], values: torch.Tensor
) -> None:
    """Other values there, wherever both the old and the new one are finite."""
    # torch selects among whole numbers where it cannot among floats of one byte
    words = WORDS[tensor.dtype.itemsize]
    old = tensor[where]
    usable = _is_finite(old) & _is_finite(values)
    tensor.view(words)[where] = torch.where(
        usable, values.contiguous().view(words), old.contiguous().view(words)
    )


def _is_finite(tensor: torch.Tensor) -> torch.Tensor:
    """By element; of float8 torch cannot tell that itself."""
    return torch.isfinite(tensor.float() if tensor.dtype.itemsize == 1 else tensor)
