"""Places in an input at which elements are replaced: boxes, lines and single ones, wherever samples may be taken."""

from __future__ import annotations

import random

import torch

RARE_COUNTS = (1, 2, 4, 8)
"""How many elements are replaced one by one, anywhere."""

LINE_COUNTS = (2, 4, 8, 16, 32)
"""How many, at most, where they lie in one line."""

MAX_PARTS = 16
"""Into how many parts, at most, such a line is divided."""

EVEN_SHARE = 0.5
"""Of elements that lie in lines, how often those of a line divide it evenly, which is where samples are taken."""

MAX_LINES = 1024
"""In how many lines, at most, elements are replaced together. What shows only where certain elements of one line meet
is found in many lines sooner than in one."""


def box_of(tensor: torch.Tensor, secret: random.Random, whole: float = 0.0) -> tuple[slice, ...]:
    """In each dimension small lengths are as likely as large ones, but for a share that are as long as it is."""
    box = []
    for size in tensor.shape:
        length = size if secret.random() < whole else max(1, size >> secret.randrange(size.bit_length()))
        start = _place(size - length + 1, secret)
        box.append(slice(start, start + length))
    return tuple(box)


def places_in(
    tensor: torch.Tensor, secret: random.Random, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Indices of some elements, one tensor a dimension; an element may be among them twice.

    Every other time they lie in lines, rows say, since elements that are far apart seldom meet in a kernel. One line is
    as likely as two, four or many.
    """
    if secret.random() < 0.5:
        return single_places(tensor, secret, generator)
    along = secret.choice([dim for dim, size in enumerate(tensor.shape) if size > 1])
    lines = min(MAX_LINES, tensor.numel() // tensor.shape[along])
    shape = 1 << secret.randrange(lines.bit_length()), secret.choice(LINE_COUNTS)
    is_even = secret.random() < EVEN_SHARE
    drawn = [
        _even_places(size, shape[1], secret, generator)
        if is_even and dim == along
        else _drawn_places(size, shape if dim == along else (shape[0], 1), generator)
        for dim, size in enumerate(tensor.shape)
    ]
    return tuple(places.expand(shape).reshape(-1) for places in drawn)


def single_places(
    tensor: torch.Tensor, secret: random.Random, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """As `places_in`, a few of them anywhere."""
    count = min(secret.choice(RARE_COUNTS), tensor.numel())
    flat = torch.randint(tensor.numel(), (count,), generator=generator, device=tensor.device)
    return torch.unravel_index(flat, tensor.shape)


def _even_places(size: int, count: int, secret: random.Random, generator: torch.Generator) -> torch.Tensor:
    """So many, some twice, where the line is divided into as many parts as there may be: where these begin, or their
    middles."""
    parts = min(size, secret.randint(2, MAX_PARTS))
    start = secret.choice((0, size // (2 * parts)))
    chosen = torch.randint(parts, (1, count), generator=generator, device=generator.device)
    return chosen * size // parts + start


def _drawn_places(size: int, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """As `_place`, so many of them."""
    device = generator.device
    steps = 1 << torch.randint(size.bit_length(), shape, generator=generator, device=device)
    return (uniform(shape, generator) * -(-size // steps)).to(torch.int64) * steps


def _place(size: int, secret: random.Random) -> int:
    """An index: a multiple of 1, 2, 4 or any further power of two, for that is where samples are taken."""
    step = 1 << secret.randrange(size.bit_length())
    return secret.randrange(0, size, step)


def generator_for(tensor: torch.Tensor, secret: random.Random) -> torch.Generator:
    """Draws on the tensor's device, so that nothing waits for what the device is at."""
    return torch.Generator(tensor.device).manual_seed(secret.getrandbits(62))


def uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """In [0, 1), float64."""
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
