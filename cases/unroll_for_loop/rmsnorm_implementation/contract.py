"""y = x / sqrt(mean(x^2) + eps) * weight over the last of three dimensions: shapes, inputs, reference and work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

SMALLEST = 2.0**-14
"""The least normal number of float16: below it, numbers lie no closer together."""


class Contract(contract.Contract):
    """x and y are batch x length x hidden, row-major and contiguous; weight has a number for each hidden channel."""

    problems: Mapping[str, Problem] = {
        "square_8x4096x4096": {"batch": 8, "length": 4096, "hidden": 4096, "eps": 1e-6},
        "large_4x4096x8192": {"batch": 4, "length": 4096, "hidden": 8192, "eps": 1e-5},
        "wide_2x1024x65536": {"batch": 2, "length": 1024, "hidden": 65536, "eps": 1e-6},
        "heads_8192x128x128": {"batch": 8192, "length": 128, "hidden": 128, "eps": 1e-6},
        "tall_131072x2x512": {"batch": 131072, "length": 2, "hidden": 512, "eps": 1e-6},
        "ragged_3x8193x5003": {"batch": 3, "length": 8193, "hidden": 5003, "eps": 1e-6},
        "few_2x32x1048576": {"batch": 2, "length": 32, "hidden": 1048576, "eps": 1e-6},
        "small_4x5x4096": {"batch": 4, "length": 5, "hidden": 4096, "eps": 1e-6},
        "small_4x5x8192": {"batch": 4, "length": 5, "hidden": 8192, "eps": 1e-6},
        "long_1x2x16387": {"batch": 1, "length": 2, "hidden": 16387, "eps": 1e-5},
        "long_1x2x65539": {"batch": 1, "length": 2, "hidden": 65539, "eps": 1e-5},
        "odd_3x19x129": {"batch": 3, "length": 19, "hidden": 129, "eps": 1e-5},
        "ragged_7x1x1000": {"batch": 7, "length": 1, "hidden": 1000, "eps": 1e-6},
        "ragged_2x3x5003": {"batch": 2, "length": 3, "hidden": 5003, "eps": 1e-6},
        "even_1x2x5120": {"batch": 1, "length": 2, "hidden": 5120, "eps": 1e-6},
        "column_3x11x1": {"batch": 3, "length": 11, "hidden": 1, "eps": 0.5},
        "tiny_2x3x5": {"batch": 2, "length": 3, "hidden": 5, "eps": 1e-6},
        "single_1x1x1": {"batch": 1, "length": 1, "hidden": 1, "eps": 1e-6},
    }
    distributions = ("scaled", "offset", "tiny", "huge", "silent", "outliers")
    # A weight times the root of the largest row stays in float16.
    domains: Mapping[str, tuple[float, float]] = {"x": (-6e4, 6e4), "weight": (-60, 60)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and weight; a pass or two more than drawing them, so that timed inputs are made quickly."""
        hidden, device = problem["hidden"], generator.device
        x = torch.randn(_shape(problem), generator=generator, dtype=torch.float16, device=device)
        weight = torch.randn(hidden, generator=generator, dtype=torch.float16, device=device)
        _SHAPED[distribution](x, generator)
        return {"x": x, "weight": weight.add_(1)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec(_shape(problem), torch.float16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("batch", "length", "hidden"))

    def attributes(self, problem: Problem) -> dict[str, float]:
        return {"eps": problem["eps"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x = inputs["x"].double()
        power = torch.linalg.vector_norm(x, dim=2, keepdim=True).square_().div_(problem["hidden"])
        return {"y": x.div_(power.add_(problem["eps"]).sqrt_()).mul_(inputs["weight"])}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        x, weight = inputs["x"], inputs["weight"]
        return {"y": torch.nn.functional.rms_norm(x, (problem["hidden"],), weight, problem["eps"])}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size: nothing cancels in it."""
        return {"y": reference["y"].abs().clamp_(min=SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Square, sum and two products an element; x and weight read once, y written once."""
        size = prod(_shape(problem))
        return Work(flops=4 * size, bytes=2 * (size + size + problem["hidden"]))


def _shape(problem: Problem) -> tuple[int, int, int]:
    return problem["batch"], problem["length"], problem["hidden"]


def _scale_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """By e^N(0, 1) each: were every root near one, leaving the division out would hide."""
    x.mul_(torch.randn((*x.shape[:2], 1), generator=generator, dtype=x.dtype, device=x.device).exp_())


def _offset(x: torch.Tensor, generator: torch.Generator) -> None:
    """Mean 50: a variance in place of the mean of squares is 2500 times too small."""
    x.add_(50)


def _shrink(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e-3 wide: the mean of squares is no larger than eps."""
    x.mul_(1e-3)


def _stretch(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e3 wide: squares leave the range of float16."""
    x.mul_(1e3)


def _silence(x: torch.Tensor, generator: torch.Generator) -> None:
    """About half of the tokens are zero, as padding is: a sum of zero that waits to be published is never seen."""
    x.mul_(torch.randn((*x.shape[:2], 1), generator=generator, device=x.device) > 0)


def _stretch_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """300 times, anywhere, as in real activations: a mean that skips a block or the tail misses it at times."""
    column = torch.randint(x.shape[2], (1,), generator=generator, device=x.device)
    x.index_copy_(2, column, x.index_select(2, column).mul_(300))


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scaled": _scale_rows,
    "offset": _offset,
    "tiny": _shrink,
    "huge": _stretch,
    "silent": _silence,
    "outliers": _stretch_one_column,
}
