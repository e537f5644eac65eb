"""y = mean of x over some of its dimensions, float32: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import log2, prod

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import changed, unlisted

ROUNDINGS = 3.0
"""Of float32, that a sum of any length may be off by."""


class Contract(contract.Contract):
    """x has one to four dimensions and is contiguous; y has as many, those that are averaged over of length one."""

    problems: Mapping[str, Problem] = {
        "inner_32768x8192": {"shape": [32768, 8192], "dims": "1"},
        "outer_32768x8192": {"shape": [32768, 8192], "dims": "0"},
        "middle_128x4096x512": {"shape": [128, 4096, 512], "dims": "1"},
        "channels_256x1024x32x32": {"shape": [256, 1024, 32, 32], "dims": "0,2,3"},
        "pool_512x2048x14x14": {"shape": [512, 2048, 14, 14], "dims": "2,3"},
        "last_256x56x56x256": {"shape": [256, 56, 56, 256], "dims": "0,1,2"},
        "crossed_64x128x256x128": {"shape": [64, 128, 256, 128], "dims": "0,2"},
        "ragged_4099x61x1021": {"shape": [4099, 61, 1021], "dims": "0,2"},
        "few_16x16777216": {"shape": [16, 16777216], "dims": "1"},
        "all_64x1024x1024": {"shape": [64, 1024, 1024], "dims": "0,1,2"},
        "small_2x3x4x5_over_1": {"shape": [2, 3, 4, 5], "dims": "1"},
        "small_2x3x4x5_over_0_2": {"shape": [2, 3, 4, 5], "dims": "0,2"},
        "small_2x3x4x5_over_1_3": {"shape": [2, 3, 4, 5], "dims": "1,3"},
        "small_2x3x4x5_over_0_3": {"shape": [2, 3, 4, 5], "dims": "0,3"},
        "small_2x3x4x5_over_2_3": {"shape": [2, 3, 4, 5], "dims": "2,3"},
        "small_2x3x4x5_over_0_1_2": {"shape": [2, 3, 4, 5], "dims": "0,1,2"},
        "small_2x3x4x5_over_all": {"shape": [2, 3, 4, 5], "dims": "0,1,2,3"},
        "vector_40001": {"shape": [40001], "dims": "0"},
        "long_3x17x2049": {"shape": [3, 17, 2049], "dims": "0,2"},
        "columns_3001x7": {"shape": [3001, 7], "dims": "0"},
        "rows_37x129": {"shape": [37, 129], "dims": "1"},
        "thin_5x1x33x1": {"shape": [5, 1, 33, 1], "dims": "1,2"},
        "copy_1x13x1": {"shape": [1, 13, 1], "dims": "0,2"},
        "single_1": {"shape": [1], "dims": "0"},
    }
    distributions = ("normal", "offset", "ramp", "spike", "huge")
    # Beside much larger ones, float32 loses all the others.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e5, 1e5)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x; a pass or two more than drawing it, so that timed inputs are made quickly."""
        x = torch.randn(tuple(problem["shape"]), generator=generator, device=generator.device)
        _SHAPED[distribution](x, generator)
        return {"x": x}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        dims = _dims(problem)
        kept = tuple(1 if dim in dims else size for dim, size in enumerate(problem["shape"]))
        return {"y": Spec(kept, torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        sizes = {str(dim): size for dim, size in enumerate(problem["shape"])}
        shapes = [list(other.values()) for other in changed(sizes, secret, tuple(sizes))]
        return unlisted(({**problem, "shape": shape} for shape in shapes), self.problems)

    def attributes(self, problem: Problem) -> dict[str, str]:
        return {"dims": problem["dims"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].double().mean(_dims(problem), keepdim=True)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].mean(_dims(problem), keepdim=True)}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """The mean of magnitudes, which conditions sums of any order, times a quarter of the levels of a tree of sums.

        Each level rounds once; what one accumulator leaves of a million numbers is far beyond that. Two dozen numbers
        may be added one after another, and their sum multiplied by a rounded reciprocal: roundings of three.
        """
        dims = _dims(problem)
        levels = log2(prod(problem["shape"][dim] for dim in dims))
        return {"y": inputs["x"].double().abs_().mean(dims, keepdim=True).mul_(max(ROUNDINGS, levels / 4))}

    def work(self, problem: Problem) -> Work:
        """A sum an element; x read once, y written once."""
        size = prod(problem["shape"])
        return Work(flops=size, bytes=4 * (size + prod(self.outputs(problem)["y"].shape)))


def _dims(problem: Problem) -> list[int]:
    return [int(dim) for dim in problem["dims"].split(",")]


def _as_drawn(x: torch.Tensor, generator: torch.Generator) -> None:
    """Around zero: nearly everything cancels."""


def _offset(x: torch.Tensor, generator: torch.Generator) -> None:
    """Around 1000: one accumulator for a million elements is off by a thousandth."""
    x.add_(1000)


def _rise(x: torch.Tensor, generator: torch.Generator) -> None:
    """The slices along every dimension differ, by more the further they are apart."""
    for dim, size in enumerate(x.shape):
        steps = torch.linspace(0, 10 * (dim + 1), size, device=x.device)
        x.add_(steps.view([-1 if other == dim else 1 for other in range(x.ndim)]))


def _raise_one(x: torch.Tensor, generator: torch.Generator) -> None:
    """One slice of every dimension weighs as much as many others, and it may be the last."""
    for dim, size in enumerate(x.shape):
        at = torch.randint(size, (1,), generator=generator, device=x.device)
        x.index_copy_(dim, at, x.index_select(dim, at).add_(4 * size**0.5))


def _stretch(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e30 wide: squares, and products with a count, leave the range of float32."""
    x.mul_(1e30)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "ramp": _rise,
    "spike": _raise_one,
    "huge": _stretch,
}
