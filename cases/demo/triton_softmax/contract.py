"""y = softmax(x) along rows, bfloat16: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

SMALLEST = 2.0**-100
"""Probabilities below this are held to it, not to their own size: they may be rounded to zero."""

EDGE = "a single column: every result is 1, and a kernel for wide rows may get it wrong"


class Contract(contract.Contract):
    """x and y are rows x columns, row-major and contiguous; every row of y sums to one."""

    problems: Mapping[str, Problem] = {
        "square_4096x4096": {"rows": 4096, "columns": 4096},
        "wide_512x65536": {"rows": 512, "columns": 65536},
        "tall_16384x256": {"rows": 16384, "columns": 256},
        "ragged_301x5003": {"rows": 301, "columns": 5003},
        "odd_513x1029": {"rows": 513, "columns": 1029},
        "long_2x33333": {"rows": 2, "columns": 33333},
        "odd_67x129": {"rows": 67, "columns": 129},
        "ragged_7x1000": {"rows": 7, "columns": 1000},
        "even_16x512": {"rows": 16, "columns": 512},
        "row_1x4097": {"rows": 1, "columns": 4097},
        "column_33x1": {"rows": 33, "columns": 1},
        "tiny_3x5": {"rows": 3, "columns": 5},
        "single_1x1": {"rows": 1, "columns": 1},
    }
    distributions = ("normal", "offset", "sunken", "rising", "spike", "extreme")
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e4, 1e4)}
    excused: Mapping[str, str] = {
        "outputs that nothing changes in problem column_33x1": EDGE,
        "outputs that nothing changes in problem single_1x1": EDGE,
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x; one or two passes over it, none in a wider dtype, so that timed inputs are drawn quickly."""
        shape = (problem["rows"], problem["columns"])
        x = torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=generator.device)
        if distribution == "spike":
            _raise_one_column(x, generator)
        return {"x": _SHAPED[distribution](x)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["rows"], problem["columns"]), torch.bfloat16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x = inputs["x"].double()
        powers = (x - x.amax(dim=1, keepdim=True)).exp_()
        return {"y": powers.div_(powers.sum(dim=1, keepdim=True))}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Maximum, differences, exponentials and sum in float32, rounded to bfloat16 at the end."""
        x = inputs["x"].float()
        powers = (x - x.amax(dim=1, keepdim=True)).exp_()
        return {"y": powers.div_(powers.sum(dim=1, keepdim=True)).bfloat16()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each probability's own size: one in 65536 is as right as one in two."""
        return {"y": reference["y"].clamp_min(SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Maximum, difference, exponential, sum and quotient an element; x read once, y written once."""
        size = problem["rows"] * problem["columns"]
        return Work(flops=5 * size, bytes=2 * (size + size))


def _raise_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """By 12, anywhere: it outweighs the rest of the row, and a sum guessed from part of it misses that."""
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    x.index_add_(1, column, torch.full((x.shape[0], 1), 12, dtype=x.dtype, device=x.device))


def _as_drawn(x: torch.Tensor) -> torch.Tensor:
    return x


def _offset(x: torch.Tensor) -> torch.Tensor:
    """Around 300: exp(300) is infinite in float32, so a softmax without its maximum divides infinities."""
    return x.add_(300)


def _sunken(x: torch.Tensor) -> torch.Tensor:
    """Around -300 and 30 wide: exp(-300) is zero in float32, and a maximum that starts at 0 stays there."""
    return x.mul_(30).sub_(300)


def _rising(x: torch.Tensor) -> torch.Tensor:
    """Rises by 80 along each row: a running maximum moves in every step, and old sums must be rescaled."""
    return x.add_(torch.linspace(0, 80, x.shape[1], dtype=x.dtype, device=x.device))


def _extreme(x: torch.Tensor) -> torch.Tensor:
    """1000 wide: nearly all of a row is zero beside its largest elements."""
    return x.mul_(1000)


_SHAPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": _as_drawn,
    "spike": _as_drawn,
    "offset": _offset,
    "sunken": _sunken,
    "rising": _rising,
    "extreme": _extreme,
}
