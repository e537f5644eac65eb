"""The inputs of many calls drawn at once: a small call's are mostly launches, of which a GPU is sent a graph instead.

A CUDA graph that captured the drawing of some calls draws, from the same seed, the very bits that the calls draw one by
one. That is looked at before a graph is used; a contract whose drawing cannot be captured, or differs, is drawn from
call by call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from harness.case.contract import Tensors

COUNT = 128
"""Calls that are drawn at once."""

LARGEST = 1 << 20
"""Bytes of one call's inputs up to which launches are what drawing costs."""

SEEDS = (1, 2)
"""From which a graph is compared with what it captured."""

Draw = Callable[[torch.Generator], Tensors]


class Batch:
    """The drawing of COUNT calls, captured. Raises RuntimeError where it cannot be, as torch tells it."""

    count = COUNT

    def __init__(self, draw: Draw, place: str) -> None:
        self._generator = torch.Generator(place)
        draw(self._generator)  # whatever a contract makes only once
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(self._generator)
        with torch.cuda.graph(self._graph):
            self._drawn = one_by_one(draw, self._generator)

    def draw(self, seed: int) -> Tensors:
        """Of every input a tensor with one row a call, which the next drawing overwrites."""
        self._generator.manual_seed(seed)
        self._graph.replay()
        return self._drawn


@dataclass
class Batches:
    """Those of a judge, each captured when it is first asked for."""

    _made: dict[tuple[str, str], Batch | None] = field(default_factory=dict)

    def of(self, problem: str, distribution: str, draw: Draw, place: str) -> Batch | None:
        """For one problem's inputs; None where they are better drawn call by call."""
        key = (problem, distribution)
        if key not in self._made:
            self._made[key] = capture(draw, place) if place.startswith("cuda") else None
        return self._made[key]


def capture(draw: Draw, place: str) -> Batch | None:
    """A batch that draws what `draw` does; None where calls are large, or it would not."""
    sample = draw(torch.Generator(place).manual_seed(SEEDS[0]))
    if sum(tensor.nbytes for tensor in sample.values()) > LARGEST:
        return None
    try:
        batch = Batch(draw, place)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return batch if draws_the_same(batch, draw, place) else None


def draws_the_same(batch: Batch, draw: Draw, place: str) -> bool:
    """Bit for bit, from every one of SEEDS."""
    for seed in SEEDS:
        expected = one_by_one(draw, torch.Generator(place).manual_seed(seed))
        found = batch.draw(seed)
        if found.keys() != expected.keys():
            return False
        if not all(_are_equal(found[name], tensor) for name, tensor in expected.items()):
            return False
    return True


def one_by_one(draw: Draw, generator: torch.Generator) -> Tensors:
    """What so many calls draw after each other, one row a call."""
    calls = [draw(generator) for _ in range(COUNT)]
    return {name: torch.stack([call[name] for call in calls]) for name in calls[0]}


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """As bytes, since a NaN differs from itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
