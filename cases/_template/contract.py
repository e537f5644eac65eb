"""What right means for {{family}}/{{case}}: sums of the rows of a float32 matrix, until you put your own here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

_TINIEST = torch.finfo(torch.float32).tiny


class Contract(contract.Contract):
    """X is rows x columns, S has one sum for each row."""

    # Every size the kernel must be right for: the real ones, odd ones, and the edges (1, a prime, not a multiple).
    problems: Mapping[str, Problem] = {
        "large_512x4096": {"rows": 512, "columns": 4096},
        "small_64x257": {"rows": 64, "columns": 257},
        "row_1x1009": {"rows": 1, "columns": 1009},
        "column_300x1": {"rows": 300, "columns": 1},
    }
    # Several kinds of input, so that a shortcut which is right for one is caught by another.
    distributions = ("normal", "offset", "wide")
    # The least and the greatest value of any element. Beside much larger ones, float32 loses all the others.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """X, drawn from `generator` alone: the same seed must give the same tensors."""
        shape = (problem["rows"], problem["columns"])
        x = torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device)
        if distribution == "offset":
            x = x + 100
        if distribution == "wide":
            exponents = torch.randint(-20, 21, shape, generator=generator, device=generator.device)
            x = torch.ldexp(x, exponents)
        return {"x": x}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        """Shapes and dtypes; the kernel is called as run(x, s)."""
        return {"s": Spec((problem["rows"],), torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """Sizes that are not listed and must be right as well; sizes in one pair of brackets may also be swapped."""
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The mathematics in float64; never a copy of the kernel's own steps."""
        return {"s": inputs["x"].double().sum(dim=1)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """A plain computation in the kernel's dtype. How far off it is, is the unit of the error budget."""
        total = torch.zeros(problem["rows"], dtype=torch.float32, device=inputs["x"].device)
        for column in inputs["x"].t().contiguous():
            total += column
        return {"s": total}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """What errors are counted against: here the sum of magnitudes, which rounding is proportional to."""
        return {"s": inputs["x"].double().abs().sum(dim=1).clamp_min(_TINIEST)}

    def work(self, problem: Problem) -> Work:
        """The least any kernel must do: operations, and bytes read once and written once."""
        rows, columns = problem["rows"], problem["columns"]
        return Work(flops=rows * (columns - 1), bytes=4 * (rows * columns + rows))
