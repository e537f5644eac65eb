"""y = x / sqrt(mean(x^2) + eps) * weight of each token, float16: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

SMALLEST = 2.0**-14
"""The least normal number of float16: below it, numbers lie no closer together."""


class Contract(contract.Contract):
    """x and y are tokens x hidden, row-major and contiguous; weight has a number for each hidden channel."""

    problems: Mapping[str, Problem] = {
        "prefill_16384x8192": {"tokens": 16384, "hidden": 8192, "eps": 1e-5},
        "prefill_32768x4096": {"tokens": 32768, "hidden": 4096, "eps": 1e-6},
        "prefill_8192x16384": {"tokens": 8192, "hidden": 16384, "eps": 1e-5},
        "heads_1048576x128": {"tokens": 1048576, "hidden": 128, "eps": 1e-6},
        "ragged_24577x5003": {"tokens": 24577, "hidden": 5003, "eps": 1e-6},
        "wide_2048x65536": {"tokens": 2048, "hidden": 65536, "eps": 1e-5},
        "few_64x1048576": {"tokens": 64, "hidden": 1048576, "eps": 1e-5},
        "ragged_2x50000003": {"tokens": 2, "hidden": 50000003, "eps": 1e-5},
        "small_1x8192": {"tokens": 1, "hidden": 8192, "eps": 1e-5},
        "small_2x4096": {"tokens": 2, "hidden": 4096, "eps": 1e-6},
        "small_8x512": {"tokens": 8, "hidden": 512, "eps": 1e-6},
        "long_2x16387": {"tokens": 2, "hidden": 16387, "eps": 1e-5},
        "long_2x65539": {"tokens": 2, "hidden": 65539, "eps": 1e-5},
        "odd_67x129": {"tokens": 67, "hidden": 129, "eps": 1e-5},
        "ragged_7x1000": {"tokens": 7, "hidden": 1000, "eps": 1e-6},
        "ragged_5x5003": {"tokens": 5, "hidden": 5003, "eps": 1e-6},
        "even_2x5120": {"tokens": 2, "hidden": 5120, "eps": 1e-6},
        "column_33x1": {"tokens": 33, "hidden": 1, "eps": 0.5},
        "tiny_3x5": {"tokens": 3, "hidden": 5, "eps": 1e-6},
        "single_1x1": {"tokens": 1, "hidden": 1, "eps": 1e-6},
    }
    distributions = ("scaled", "offset", "tiny", "huge", "silent", "outliers")
    # A weight times the root of the largest row stays in float16.
    domains: Mapping[str, tuple[float, float]] = {"x": (-6e4, 6e4), "weight": (-8, 8)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and weight; a pass or two more than drawing them, so that timed inputs are made quickly."""
        tokens, hidden, device = problem["tokens"], problem["hidden"], generator.device
        x = torch.randn((tokens, hidden), generator=generator, dtype=torch.float16, device=device)
        weight = torch.randn(hidden, generator=generator, dtype=torch.float16, device=device)
        _SHAPED[distribution](x, generator)
        return {"x": x, "weight": weight.add_(1)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["tokens"], problem["hidden"]), torch.float16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("tokens", "hidden"))

    def attributes(self, problem: Problem) -> dict[str, float]:
        return {"eps": problem["eps"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x = inputs["x"].double()
        power = torch.linalg.vector_norm(x, dim=1, keepdim=True).square_().div_(problem["hidden"])
        return {"y": x.div_(power.add_(problem["eps"]).sqrt_()).mul_(inputs["weight"])}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        x, weight = inputs["x"], inputs["weight"]
        return {"y": torch.nn.functional.rms_norm(x, (problem["hidden"],), weight, problem["eps"])}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size: nothing cancels in it."""
        return {"y": reference["y"].abs().clamp_(min=SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Square, sum and two products an element; x and weight read once, y written once."""
        size = problem["tokens"] * problem["hidden"]
        return Work(flops=4 * size, bytes=2 * (size + size + problem["hidden"]))


def _scale_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """By e^N(0, 1) each: were every root near one, leaving the division out would hide."""
    x.mul_(torch.randn((x.shape[0], 1), generator=generator, dtype=x.dtype, device=x.device).exp_())


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
    x.mul_(torch.randn((x.shape[0], 1), generator=generator, device=x.device) > 0)


def _stretch_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """300 times, anywhere, as in real activations: a mean that skips a block or the tail misses it at times."""
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    x.index_copy_(1, column, x.index_select(1, column).mul_(300))


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scaled": _scale_rows,
    "offset": _offset,
    "tiny": _shrink,
    "huge": _stretch,
    "silent": _silence,
    "outliers": _stretch_one_column,
}
