"""y = (x - mean) / sqrt(variance + eps) * weight[head], float16: shapes, inputs, reference and compulsory work.

Mean and variance (of the population, over n) are those of one head of one batch entry.
"""

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

CANCELLATION = 2.0**-12
"""Share of the magnitudes that cancel in x - mean: 32 roundings of float32, in units of one of float16."""


class Contract(contract.Contract):
    """x and y are batch x heads x size, row-major and contiguous; weight is heads x size."""

    problems: Mapping[str, Problem] = {
        "heads_32768x32x128": {"batch": 32768, "heads": 32, "size": 128, "eps": 1e-5},
        "wide_4096x4x8192": {"batch": 4096, "heads": 4, "size": 8192, "eps": 1e-5},
        "groups_65536x7x256": {"batch": 65536, "heads": 7, "size": 256, "eps": 1e-6},
        "medium_16384x8x1024": {"batch": 16384, "heads": 8, "size": 1024, "eps": 1e-5},
        "split_1024x2x65536": {"batch": 1024, "heads": 2, "size": 65536, "eps": 1e-5},
        "ragged_8193x3x5003": {"batch": 8193, "heads": 3, "size": 5003, "eps": 1e-5},
        "few_16x4x1048576": {"batch": 16, "heads": 4, "size": 1048576, "eps": 1e-5},
        "ragged_1x2x50000003": {"batch": 1, "heads": 2, "size": 50000003, "eps": 1e-5},
        "small_2x3x128": {"batch": 2, "heads": 3, "size": 128, "eps": 1e-5},
        "small_2x3x256": {"batch": 2, "heads": 3, "size": 256, "eps": 1e-5},
        "long_1x2x16387": {"batch": 1, "heads": 2, "size": 16387, "eps": 1e-5},
        "odd_5x7x129": {"batch": 5, "heads": 7, "size": 129, "eps": 1e-6},
        "ragged_3x1x1000": {"batch": 3, "heads": 1, "size": 1000, "eps": 1e-5},
        "ragged_2x3x5003": {"batch": 2, "heads": 3, "size": 5003, "eps": 1e-5},
        "even_1x2x5120": {"batch": 1, "heads": 2, "size": 5120, "eps": 1e-5},
        "column_3x5x1": {"batch": 3, "heads": 5, "size": 1, "eps": 0.5},
        "tiny_2x3x5": {"batch": 2, "heads": 3, "size": 5, "eps": 1e-5},
        "single_1x1x1": {"batch": 1, "heads": 1, "size": 1, "eps": 1e-5},
    }
    distributions = ("scaled", "offset", "tiny", "huge", "outliers")
    # A weight times the root of the largest size stays in float16.
    domains: Mapping[str, tuple[float, float]] = {"x": (-6e4, 6e4), "weight": (-8, 8)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and weight; a pass or two more than drawing them, so that timed inputs are made quickly."""
        shape, device = _shape(problem), generator.device
        x = torch.randn(shape, generator=generator, dtype=torch.float16, device=device)
        weight = torch.randn(shape[1:], generator=generator, dtype=torch.float16, device=device)
        _SHAPED[distribution](x, generator)
        return {"x": x, "weight": weight.add_(1)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec(_shape(problem), torch.float16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("batch", "size"), ("heads",))

    def attributes(self, problem: Problem) -> dict[str, float]:
        return {"eps": problem["eps"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        _, centred, root = _moments(problem, inputs)
        return {"y": centred.div_(root).mul_(inputs["weight"])}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """torch's own knows no weight for each head, so that one is a product by itself."""
        normal = torch.nn.functional.layer_norm(inputs["x"], (problem["size"],), eps=problem["eps"])
        return {"y": normal.mul_(inputs["weight"])}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size, and of what cancels in it the share that float32 leaves."""
        mean, _, root = _moments(problem, inputs)
        terms = inputs["x"].double().abs_().add_(mean.abs()).div_(root).mul_(inputs["weight"].abs())
        return {"y": terms.mul_(CANCELLATION).add_(reference["y"].abs()).clamp_(min=SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Two sums, difference, square and two products an element; x and weight read once, y written once."""
        size = prod(_shape(problem))
        return Work(flops=6 * size, bytes=2 * (size + size + problem["heads"] * problem["size"]))


def _shape(problem: Problem) -> tuple[int, int, int]:
    return problem["batch"], problem["heads"], problem["size"]


def _moments(problem: Problem, inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean, x - mean, and the root of variance + eps, in float64."""
    x = inputs["x"].double()
    mean = x.mean(dim=2, keepdim=True)
    centred = x.sub_(mean)
    power = torch.linalg.vector_norm(centred, dim=2, keepdim=True).square_().div_(problem["size"])
    return mean, centred, power.add_(problem["eps"]).sqrt_()


def _scale_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """By e^N(0, 1) each: were every root near one, leaving the division out would hide."""
    x.mul_(torch.randn((*x.shape[:2], 1), generator=generator, dtype=x.dtype, device=x.device).exp_())


def _offset(x: torch.Tensor, generator: torch.Generator) -> None:
    """Mean 1000, width 2: mean(x^2) - mean^2 loses the variance in float32, which rounds 1000000 by 0.06."""
    x.mul_(2).add_(1000)


def _shrink(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e-3 wide: the variance is no larger than eps."""
    x.mul_(1e-3)


def _stretch(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e3 wide: squares leave the range of float16."""
    x.mul_(1e3)


def _stretch_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """300 times, anywhere, as in real activations: moments that skip a block or the tail miss it at times."""
    column = torch.randint(x.shape[2], (1,), generator=generator, device=x.device)
    x.index_copy_(2, column, x.index_select(2, column).mul_(300))


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scaled": _scale_rows,
    "offset": _offset,
    "tiny": _shrink,
    "huge": _stretch,
    "outliers": _stretch_one_column,
}
