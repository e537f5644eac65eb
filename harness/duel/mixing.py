"""Mixes inputs: values of another distribution, and of all of an input's domain, stand among ordinary ones.

Which elements they are is secret, so a kernel cannot tell from a sample of an input what the rest of it holds. Of
floats only finite ones stand in for finite ones. Whole numbers may be places, lengths and choices: they are mixed where
the contract gives their domain.
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

MAX_LINES = 1024
"""In how many lines, at most, elements are replaced together. What shows only where certain elements of one line meet
is found in many lines sooner than in one."""

ROUNDS = (1, 1, 2, 3)
"""How often elements of one input are replaced, one of these: what hides one thing may show with two."""

DECADES = 8.0
"""Powers of ten below the largest value of a domain that holds 0 in which rare values are drawn."""


def mix(contract: Contract, inputs: Tensors, donor: Tensors | None, secret: random.Random) -> Tensors:
    """These inputs with some elements of `donor`, a draw of the same problem, and of `contract.domains`.

    Tensors that are not changed are handed back as they are; the others are new.
    """
    ways = {
        name: _ways(contract, name, donor)
        for name, tensor in inputs.items()
        if _is_mixable(tensor, has_domain=name in contract.domains)
    }
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


def _is_mixable(tensor: torch.Tensor, *, has_domain: bool) -> bool:
    is_whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    return tensor.numel() > 1 and (tensor.is_floating_point() or (is_whole and has_domain))


def _mix_in_box(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    """A box of the donor's at the same place; in each dimension small lengths are as likely as large ones."""
    box = []
    for size in tensor.shape:
        length = max(1, size >> secret.randrange(size.bit_length()))
        start = _place(size - length + 1, secret)
        box.append(slice(start, start + length))
    _replace(tensor, tuple(box), donor[tuple(box)])


def _mix_in_elements(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    places = _places(tensor, secret, _generator(tensor, secret))
    _replace(tensor, places, donor[places])


def _mix_in_rare_values(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> None:
    generator = _generator(tensor, secret)
    places = _places(tensor, secret, generator)
    _replace(tensor, places, _rare_values_as(tensor.dtype, low, high, len(places[0]), generator))


def _generator(tensor: torch.Tensor, secret: random.Random) -> torch.Generator:
    """Draws on the tensor's device, so that nothing waits for what the device is at."""
    return torch.Generator(tensor.device).manual_seed(secret.getrandbits(62))


def _rare_values_as(
    dtype: torch.dtype, low: float, high: float, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Values of the domain, as far as the dtype holds them."""
    if dtype.is_floating_point:
        most = float(torch.finfo(dtype).max)
        return _rare_values(float(low), float(high), count, generator).clamp(-most, most).to(dtype)
    bounds, wide = torch.iinfo(dtype), torch.iinfo(torch.int64)
    least, largest = max(math.ceil(low), bounds.min), min(math.floor(high), bounds.max, wide.max)
    return _rare_whole_numbers(least, largest, count, generator).to(dtype)


def _rare_whole_numbers(low: int, high: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """As `_rare_values`, int64; float64 would round large ones."""
    even = torch.randint(low, max(high, low + 1), (count,), generator=generator, device=generator.device)
    small = torch.exp(-math.log(10) * DECADES * _uniform((count,), generator))
    shrunk = [(sign * small * min(abs(end), 2**62)).to(torch.int64) for sign, end in ((-1, low), (1, high))]
    kinds: list[float | torch.Tensor] = [low, high, even, even]
    if low <= 0 <= high:
        kinds += [0, even, *shrunk]
    return _chosen(kinds, even, generator)


def _rare_values(low: float, high: float, count: int, generator: torch.Generator) -> torch.Tensor:
    """Ends of the domain, 0, values drawn from a linear scale or, by magnitude, from a logarithmic one; float64."""
    share, height = (_uniform((count,), generator) for _ in range(2))
    even = low * (1 - share) + high * share
    kinds: list[float | torch.Tensor]
    if low <= 0 <= high:
        ends = [end for end in (low, high) if end]
        small = [end * torch.exp(-math.log(10) * DECADES * height) for end in (ends[0], ends[-1])]
        kinds = [low, high, 0.0, even, even, even, *small]
    else:
        least, largest = sorted((abs(low), abs(high)))
        drawn = torch.exp(math.log(least) * (1 - height) + math.log(largest) * height)
        kinds = [low, high, even, math.copysign(1.0, low) * drawn]
    return _chosen(kinds, even, generator)


def _chosen(
    kinds: list[float | torch.Tensor], like: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """For each element of `like` one of these, numbers or tensors like it."""
    rows = [kind if isinstance(kind, torch.Tensor) else torch.full_like(like, kind) for kind in kinds]
    chosen = torch.randint(len(kinds), (1, len(like)), generator=generator, device=like.device)
    return torch.stack(rows).gather(0, chosen)[0]


def _places(
    tensor: torch.Tensor, secret: random.Random, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Indices of some elements, one tensor a dimension; an element may be among them twice.

    Every other time they lie in lines, rows say, since elements that are far apart seldom meet in a kernel. One line is
    as likely as two, four or many.
    """
    if secret.random() < 0.5:
        count = min(secret.choice(RARE_COUNTS), tensor.numel())
        flat = torch.randint(tensor.numel(), (count,), generator=generator, device=tensor.device)
        return torch.unravel_index(flat, tensor.shape)
    along = secret.choice([dim for dim, size in enumerate(tensor.shape) if size > 1])
    lines = min(MAX_LINES, tensor.numel() // tensor.shape[along])
    shape = 1 << secret.randrange(lines.bit_length()), secret.choice(LINE_COUNTS)
    return tuple(
        _drawn_places(size, shape if dim == along else (shape[0], 1), generator).expand(shape).reshape(-1)
        for dim, size in enumerate(tensor.shape)
    )


def _drawn_places(size: int, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """As `_place`, so many of them."""
    device = generator.device
    steps = 1 << torch.randint(size.bit_length(), shape, generator=generator, device=device)
    return (_uniform(shape, generator) * -(-size // steps)).to(torch.int64) * steps


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """In [0, 1), float64."""
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)


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
