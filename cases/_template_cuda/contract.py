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
    """X is rows x columns, S has one sum for each row; all of it on the generator's device."""

    # Every size the kernel must be right for: the real ones, odd ones, and the edges (1, a prime, not a multiple).
    # What moves at most 1 MiB is also run without a GPU, by Triton's interpreter, so most of them are that small.
    problems: Mapping[str, Problem] = {
        "large_8192x4096": {"rows": 8192, "columns": 4096},
        "small_64x4000": {"rows": 64, "columns": 4000},
        "ragged_301x5003": {"rows": 301, "columns": 5003},
        "long_2x100003": {"rows": 2, "columns": 100003},
        "odd_37x129": {"rows": 37, "columns": 129},
        "row_1x1009": {"rows": 1, "columns": 1009},
        "column_33x1": {"rows": 33, "columns": 1},
        "single_1x1": {"rows": 1, "columns": 1},
    }
    # Several kinds of input, so that a shortcut which is right for one is caught by another.
    distributions = ("normal", "offset", "wide")
    # The least and the greatest value of any element. Beside much larger ones, float32 loses all the others.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """X, drawn from `generator` alone; in few passes where it is timed, since every call there has its own."""
        shape, device = (problem["rows"], problem["columns"]), generator.device
        x = torch.randn(shape, generator=generator, dtype=torch.float32, device=device)
        if distribution == "offset":
            x += 100
        if distribution == "wide":
            x.ldexp_(torch.randint(-20, 21, shape, generator=generator, dtype=torch.int32, device=device))
        return {"x": x}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        """Shapes and dtypes; the kernel is called as run(x, s). On a GPU bfloat16 and float8 may be used, too."""
        return {"s": Spec((problem["rows"],), torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """Sizes that are not listed and must be right as well; sizes in one pair of brackets may also be swapped."""
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The mathematics in float64; never a copy of the kernel's own steps."""
        return {"s": inputs["x"].double().sum(dim=1)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """A plain computation in the kernel's dtype. How far off it is, is the unit of the error budget.

        It runs for every output that is compared, so a few operators of torch's: a loop over columns is 4096 launches.
        """
        return {"s": inputs["x"].sum(dim=1)}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """What errors are counted against: here the sum of magnitudes, which rounding is proportional to."""
        return {"s": inputs["x"].double().abs_().sum(dim=1).clamp_min_(_TINIEST)}

    def work(self, problem: Problem) -> Work:
        """The least any kernel must do: operations, and bytes read once and written once."""
        rows, columns = problem["rows"], problem["columns"]
        return Work(flops=rows * (columns - 1), bytes=4 * (rows * columns + rows))
