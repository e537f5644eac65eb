"""The inputs of many calls drawn at once: a small call's are mostly launches, of which a GPU is sent a graph instead.

A CUDA graph that captured the drawing of some calls draws, from the same seed, the very bits that the calls draw one by
one. That is looked at before a graph is used; a contract whose drawing cannot be captured, or differs, is drawn from
call by call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.case.operands import are_equal

CALLS_PER_BATCH = 128
"""Calls that are drawn at once."""

MAX_SAMPLE_BYTES = 1 << 20
"""Bytes of one call's inputs up to which launches are what drawing costs."""

SEEDS = (1, 2)
"""From which a graph is compared with what it captured."""

DrawInputs = Callable[[torch.Generator], Tensors]


class InputBatch:
    """The drawing of COUNT calls, captured. Raises RuntimeError where it cannot be, as torch tells it."""

    count = CALLS_PER_BATCH

    def __init__(self, draw: DrawInputs, place: str) -> None:
        self._generator = torch.Generator(place)
        draw(self._generator)  # whatever a contract makes only once
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(self._generator)
        with torch.cuda.graph(self._graph):
            self._drawn = draw_singly(draw, self._generator)

    def draw(self, seed: int) -> Tensors:
        """Of every input a tensor with one row a call, which the next drawing overwrites."""
        self._generator.manual_seed(seed)
        self._graph.replay()
        return self._drawn


@dataclass
class InputBatches:
    """Those of a judge, each captured when it is first asked for."""

    _by_problem: dict[tuple[str, str], InputBatch | None] = field(default_factory=dict)

    def get(self, problem: str, distribution: str, draw: DrawInputs, place: str) -> InputBatch | None:
        """For one problem's inputs; None where they are better drawn call by call."""
        key = (problem, distribution)
        if key not in self._by_problem:
            self._by_problem[key] = capture_batch(draw, place) if place.startswith("cuda") else None
        return self._by_problem[key]


def capture_batch(draw: DrawInputs, place: str) -> InputBatch | None:
    """A batch that draws what `draw` does; None where calls are large, or it would not."""
    sample = draw(torch.Generator(place).manual_seed(SEEDS[0]))
    if sum(tensor.nbytes for tensor in sample.values()) > MAX_SAMPLE_BYTES:
        return None
    if not all(tensor.is_contiguous() for tensor in sample.values()):
        return None  # stacked they would lose their strides
    try:
        batch = InputBatch(draw, place)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return batch if matches_single_draws(batch, draw, place) else None


def matches_single_draws(batch: InputBatch, draw: DrawInputs, place: str) -> bool:
    """Bit for bit, from every one of SEEDS."""
    for seed in SEEDS:
        expected = draw_singly(draw, torch.Generator(place).manual_seed(seed))
        found = batch.draw(seed)
        if found.keys() != expected.keys():
            return False
        if not all(are_equal(found[name], tensor) for name, tensor in expected.items()):
            return False
    return True


def draw_singly(draw: DrawInputs, generator: torch.Generator) -> Tensors:
    """What so many calls draw after each other, one row a call."""
    calls = [draw(generator) for _ in range(CALLS_PER_BATCH)]
    return {name: torch.stack([call[name] for call in calls]) for name in calls[0]}
