"""How far a backend's logits are from those of the untouched model, over the tokens that the backend makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from hillclimb.harness.serving.backends.backend import Backend


class Gaps(NamedTuple):
    """Of one prompt, in standard deviations of the untouched model's logits."""

    token: float
    """The largest amount by which a token that was made is below the untouched model's likeliest one."""
    logits: float
    """Root mean square of the difference of all logits."""


def compare(backend: Backend, stock: Backend, prompt: Sequence[int], count: int) -> Gaps:
    """Make `count` tokens after `prompt` by `backend`, and let `stock` read the same ones."""
    mine, other = backend.prefill(0, prompt).cpu(), stock.prefill(0, prompt).cpu()
    worst, squares = 0.0, 0.0
    for _ in range(count):
        token, unit = int(mine.argmax()), float(other.std())
        worst = max(worst, float(other.max() - other[token]) / unit)
        squares += float((mine - other).square().mean()) / unit**2 / count
        mine, other = backend.decode({0: token})[0].cpu(), stock.decode({0: token})[0].cpu()
    for one in (backend, stock):
        one.reset(0)
    return Gaps(worst, squares**0.5)


def prompts(vocabulary: int, count: int = 8, tokens: int = 24) -> list[list[int]]:
    """Random tokens, always the same ones."""
    drawn = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (count, tokens), generator=drawn).tolist()
