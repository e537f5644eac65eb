"""y = x / sqrt(mean(x^2) + 1e-6) * weight along rows: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

EPSILON = 1e-6
"""As in Llama 2; added to the mean of squares."""

SMALLEST = 2.0**-100
"""Elements below this are held to it, not to their own size: they may be rounded to zero."""


class Contract(contract.Contract):
    """x and y are rows x hidden in bfloat16, row-major and contiguous; weight is hidden in float32."""

    problems: Mapping[str, Problem] = {
        "prefill_4096x4096": {"rows": 4096, "hidden": 4096},
        "prefill_8192x8192": {"rows": 8192, "hidden": 8192},
        "prefill_1024x16384": {"rows": 1024, "hidden": 16384},
        "decode_128x8192": {"rows": 128, "hidden": 8192},
        "ragged_301x5003": {"rows": 301, "hidden": 5003},
        "heads_16384x128": {"rows": 16384, "hidden": 128},
        "odd_513x1029": {"rows": 513, "hidden": 1029},
        "decode_1x16384": {"rows": 1, "hidden": 16384},
        "decode_7x4096": {"rows": 7, "hidden": 4096},
        "odd_67x129": {"rows": 67, "hidden": 129},
        "ragged_5x3333": {"rows": 5, "hidden": 3333},
        "even_16x512": {"rows": 16, "hidden": 512},
        "column_33x1": {"rows": 33, "hidden": 1},
        "tiny_3x5": {"rows": 3, "hidden": 5},
        "single_1x1": {"rows": 1, "hidden": 1},
    }
    distributions = ("scaled", "offset", "tiny", "huge", "outliers")
    # Squares stay in float32.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e15, 1e15), "weight": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and weight; few passes over x, none in a wider dtype, so that timed inputs are drawn quickly."""
        rows, hidden, device = problem["rows"], problem["hidden"], generator.device
        x = torch.randn((rows, hidden), generator=generator, dtype=torch.bfloat16, device=device)
        weight = torch.randn(hidden, generator=generator, dtype=torch.float32, device=device)
        _SHAPED[distribution](x, generator)
        return {"x": x, "weight": weight.add_(1)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["rows"], problem["hidden"]), torch.bfloat16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "hidden"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x, weight = inputs["x"].double(), inputs["weight"].double()
        root = (x.square().mean(dim=1, keepdim=True) + EPSILON).sqrt_()
        return {"y": x.div_(root).mul_(weight)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Squares, mean, root and products in float32, rounded to bfloat16 at the end."""
        x = inputs["x"].float()
        root = (x.square().mean(dim=1, keepdim=True) + EPSILON).sqrt_()
        return {"y": x.div_(root).mul_(inputs["weight"]).bfloat16()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size: there is no cancellation in it."""
        return {"y": reference["y"].abs().clamp_min(SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Square, sum and two products an element; x and weight read once, y written once."""
        size = problem["rows"] * problem["hidden"]
        return Work(flops=4 * size, bytes=2 * (size + size) + 4 * problem["hidden"])


def _scale_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """By e^N(0, 1) each: were every root near one, leaving the division out would hide."""
    rows = torch.randn((x.shape[0], 1), generator=generator, dtype=x.dtype, device=x.device)
    x.mul_(rows.exp_())


def _offset(x: torch.Tensor, generator: torch.Generator) -> None:
    """Mean 50: a variance instead of the mean of squares is 2500 times too small."""
    x.add_(50)


def _shrink(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e-3 wide: the mean of squares is as large as epsilon."""
    x.mul_(1e-3)


def _stretch(x: torch.Tensor, generator: torch.Generator) -> None:
    """1e4 wide: a square leaves the range of float16."""
    x.mul_(1e4)


def _stretch_one_column(x: torch.Tensor, generator: torch.Generator) -> None:
    """300 times, anywhere, as in real activations: a mean guessed from part of the row misses it."""
    factors = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    x.mul_(factors.index_fill_(0, column, 300))


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scaled": _scale_rows,
    "offset": _offset,
    "tiny": _shrink,
    "huge": _stretch,
    "outliers": _stretch_one_column,
}
