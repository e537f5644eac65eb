"""y = A x in float32: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

_TINIEST = torch.finfo(torch.float32).tiny


class Contract(contract.Contract):
    """A is rows x columns, row-major; x has a value for each column, y one for each row."""

    problems: Mapping[str, Problem] = {
        "large_512x1024": {"rows": 512, "columns": 1024},
        "odd_67x129": {"rows": 67, "columns": 129},
        "row_1x1000": {"rows": 1, "columns": 1000},
        "column_99x1": {"rows": 99, "columns": 1},
    }
    distributions = ("normal", "offset", "wide")
    domains: Mapping[str, tuple[float, float]] = dict.fromkeys(("a", "x"), (-1e7, 1e7))

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        draw = _DRAWS[distribution]
        rows, columns = problem["rows"], problem["columns"]
        return {"a": draw((rows, columns), generator), "x": draw((columns,), generator)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["rows"],), torch.float32)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["a"].double() @ inputs["x"].double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """One float32 running sum a row, in order."""
        total = torch.zeros(problem["rows"], dtype=torch.float32)
        for column in range(problem["columns"]):
            total += inputs["a"][:, column] * inputs["x"][column]
        return {"y": total}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """|A| |x|: the magnitude that rounding is proportional to."""
        return {"y": (inputs["a"].double().abs() @ inputs["x"].double().abs()).clamp_min(_TINIEST)}

    def work(self, problem: Problem) -> Work:
        rows, columns = problem["rows"], problem["columns"]
        return Work(flops=2 * rows * columns, bytes=4 * (rows * columns + rows + columns))


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _offset(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Mean 100: the sums grow with the columns, so a short accumulator loses digits."""
    return _normal(shape, generator) + 100


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Magnitudes over 2^-20 to 2^20: a few products decide each element."""
    return torch.ldexp(_normal(shape, generator), torch.randint(-20, 21, shape, generator=generator))


_DRAWS = {"normal": _normal, "offset": _offset, "wide": _wide}
