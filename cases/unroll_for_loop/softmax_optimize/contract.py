"""y = softmax(x) along rows, float32, rows of any width: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import log2

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours
from hillclimb.harness.case.contracts.sums import absorbed

EPS = torch.finfo(torch.float32).eps

SMALLEST = 2.0**-100
"""Probabilities below this are held to it, not to their own size: they may be rounded to zero."""

FARTHEST = 128.0
"""Distances from a row's maximum beyond this count as this: what lies there is zero."""

EDGE = "a single column: every result is 1, and a kernel for wide rows may get it wrong"


class Contract(contract.Contract):
    """x and y are rows x columns, row-major and contiguous; every row of y sums to one."""

    problems: Mapping[str, Problem] = {
        "square_8192x8192": {"rows": 8192, "columns": 8192},
        "narrow_262144x256": {"rows": 262144, "columns": 256},
        "vocabulary_2048x32000": {"rows": 2048, "columns": 32000},
        "wide_512x128256": {"rows": 512, "columns": 128256},
        "ragged_12289x5003": {"rows": 12289, "columns": 5003},
        "few_64x1048576": {"rows": 64, "columns": 1048576},
        "ragged_2x25000003": {"rows": 2, "columns": 25000003},
        "small_128x512": {"rows": 128, "columns": 512},
        "small_64x1024": {"rows": 64, "columns": 1024},
        "long_2x16387": {"rows": 2, "columns": 16387},
        "long_2x32771": {"rows": 2, "columns": 32771},
        "odd_19x129": {"rows": 19, "columns": 129},
        "even_3x5120": {"rows": 3, "columns": 5120},
        "ragged_7x1000": {"rows": 7, "columns": 1000},
        "column_9x1": {"rows": 9, "columns": 1},
        "tiny_3x5": {"rows": 3, "columns": 5},
        "single_1x1": {"rows": 1, "columns": 1},
    }
    distributions = ("normal", "offset", "rising", "spike", "masked")
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e4, 1e4)}
    excused: Mapping[str, str] = {
        "outputs that nothing changes in problem column_9x1": EDGE,
        "outputs that nothing changes in problem single_1x1": EDGE,
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x; a pass or two more than drawing it, so that timed inputs are made quickly."""
        shape = (problem["rows"], problem["columns"])
        x = torch.randn(shape, generator=generator, device=generator.device)
        return {"x": _SHAPED[distribution](x, generator)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["rows"], problem["columns"]), torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x = inputs["x"].double()
        powers = x.sub_(x.amax(dim=1, keepdim=True)).exp_()
        return {"y": powers.div_(powers.sum(dim=1, keepdim=True))}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].softmax(dim=1)}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each probability's size times its conditioning.

        With u one rounding: d = x - maximum is off by u |d|, and so is exp(d); exponential and quotient round once more
        each, and a tree of sums once a level, of which half is asked for. A sum also loses exponentials beside larger
        ones. One in a million is held as hard as half.
        """
        x = inputs["x"].double()
        distance = x.neg_().add_(inputs["x"].amax(dim=1, keepdim=True)).clamp_(max=FARTHEST)
        roundings = absorbed(reference["y"], 1).div_(EPS).add_(2 + log2(problem["columns"]) / 2)
        return {"y": distance.add_(roundings).mul_(reference["y"]).clamp_(min=SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Maximum, difference, exponential, sum and quotient an element; x read once, y written once."""
        size = problem["rows"] * problem["columns"]
        return Work(flops=5 * size, bytes=4 * (size + size))


def _as_drawn(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x


def _offset(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Around -300: exp(-300) is zero in float32, and a maximum that starts at 0 stays there."""
    return x.sub_(300)


def _rising(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rises by 60 along each row: the running maximum moves in every step, and old sums must be rescaled."""
    return x.add_(torch.linspace(0, 60, x.shape[1], device=x.device))


def _spike(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One column, anywhere, is 20 higher: a kernel that skips the masked tail, or any block, misses it at times."""
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    return x.index_add_(1, column, torch.full((x.shape[0], 1), 20.0, device=x.device))


def _masked(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A sixth is -inf, as attention masks leave it, the first half of each row wholly: blocks without a maximum."""
    x.masked_fill_(x < -1, float("-inf"))
    x[:, : x.shape[1] // 2] = float("-inf")
    x[:, -1] = 0
    return x


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "rising": _rising,
    "spike": _spike,
    "masked": _masked,
}
