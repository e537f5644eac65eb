"""y = x / sqrt(mean(x^2) + eps) * weight along rows, float32: shapes, inputs, reference and compulsory work."""

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
"""Elements below this are held to it, not to their own size: they may be rounded to zero."""


class Contract(contract.Contract):
    """x and y are rows x columns, row-major and contiguous; weight has a number for each column."""

    problems: Mapping[str, Problem] = {
        "square_8192x8192": {"rows": 8192, "columns": 8192, "eps": 1e-6},
        "narrow_524288x128": {"rows": 524288, "columns": 128, "eps": 1e-6},
        "hidden_4096x16384": {"rows": 4096, "columns": 16384, "eps": 1e-5},
        "ragged_12289x5003": {"rows": 12289, "columns": 5003, "eps": 1e-6},
        "wide_1024x65536": {"rows": 1024, "columns": 65536, "eps": 1e-6},
        "few_64x1048576": {"rows": 64, "columns": 1048576, "eps": 1e-6},
        "ragged_2x25000003": {"rows": 2, "columns": 25000003, "eps": 1e-6},
        "small_2x16": {"rows": 2, "columns": 16, "eps": 1e-6},
        "small_4x256": {"rows": 4, "columns": 256, "eps": 1e-6},
        "small_1x16384": {"rows": 1, "columns": 16384, "eps": 1e-6},
        "long_2x16387": {"rows": 2, "columns": 16387, "eps": 1e-6},
        "odd_67x129": {"rows": 67, "columns": 129, "eps": 1e-5},
        "ragged_7x1000": {"rows": 7, "columns": 1000, "eps": 1e-6},
        "ragged_3x5003": {"rows": 3, "columns": 5003, "eps": 1e-6},
        "even_2x5120": {"rows": 2, "columns": 5120, "eps": 1e-6},
        "column_33x1": {"rows": 33, "columns": 1, "eps": 0.5},
        "tiny_3x5": {"rows": 3, "columns": 5, "eps": 1e-6},
        "single_1x1": {"rows": 1, "columns": 1, "eps": 1e-6},
    }
    distributions = ("scaled", "offset", "tiny", "silent", "outliers")
    # Squares stay in float32.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e15, 1e15), "weight": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and weight; a pass or two more than drawing them, so that timed inputs are made quickly."""
        rows, columns, device = problem["rows"], problem["columns"], generator.device
        x = torch.randn((rows, columns), generator=generator, device=device)
        weight = torch.randn(columns, generator=generator, device=device)
        _SHAPED[distribution](x, generator)
        return {"x": x, "weight": weight.add_(1)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["rows"], problem["columns"]), torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def attributes(self, problem: Problem) -> dict[str, float]:
        return {"eps": problem["eps"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x = inputs["x"].double()
        power = torch.linalg.vector_norm(x, dim=1, keepdim=True).square_().div_(problem["columns"])
        return {"y": x.div_(power.add_(problem["eps"]).sqrt_()).mul_(inputs["weight"])}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        x, weight = inputs["x"], inputs["weight"]
        return {"y": torch.nn.functional.rms_norm(x, (problem["columns"],), weight, problem["eps"])}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size, for nothing cancels in it, times the units in the last place that roundings leave.

        Mean, root and two products round by half a unit each, and a tree of sums by half a unit a level, of which half
        is asked for and the root leaves half, as it does of what is lost beside a square that outweighs all others.
        """
        squares = inputs["x"].double().square_()
        lost = absorbed(squares, 1).div_(squares.sum(dim=1, keepdim=True).clamp_min_(SMALLEST))
        units = lost.div_(2 * EPS).add_(2 + log2(problem["columns"]) / 8)
        return {"y": reference["y"].abs().mul_(units).clamp_(min=SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Square, sum and two products an element; x and weight read once, y written once."""
        size = problem["rows"] * problem["columns"]
        return Work(flops=4 * size, bytes=4 * (size + size + problem["columns"]))


def _scale_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """By e^N(0, 1) each: were every root near one, leaving the division out would hide."""
    x.mul_(torch.randn((x.shape[0], 1), generator=generator, device=x.device).exp_())


def _offset(x: torch.Tensor, generator: torch.Generator) -> None:
    """Mean 50: a variance in place of the mean of squares is 2500 times too small."""
    x.add_(50)


def _shrink(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e-3 wide: the mean of squares is as large as eps."""
    x.mul_(1e-3)


def _silence(x: torch.Tensor, generator: torch.Generator) -> None:
    """About half of the rows are zero, and so is what comes of them."""
    x.mul_(torch.randn((x.shape[0], 1), generator=generator, device=x.device) > 0)


def _stretch_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """100 times, anywhere, as in real activations: a mean that skips a block or the tail misses it at times."""
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    x.index_copy_(1, column, x.index_select(1, column).mul_(100))


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scaled": _scale_rows,
    "offset": _offset,
    "tiny": _shrink,
    "silent": _silence,
    "outliers": _stretch_one_column,
}
