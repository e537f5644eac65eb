"""C = A B in float32: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

_TINIEST = torch.finfo(torch.float32).tiny


class Contract(contract.Contract):
    """A is m x k, B is k x n, C is m x n; all row-major and contiguous."""

    problems: Mapping[str, Problem] = {
        "square_256": {"m": 256, "n": 256, "k": 256},
        "square_64": {"m": 64, "n": 64, "k": 64},
        "odd_201x263x181": {"m": 201, "n": 263, "k": 181},
        "tall_900x61x131": {"m": 900, "n": 61, "k": 131},
        "skinny_500x3x40": {"m": 500, "n": 3, "k": 40},
        "deep_9x11x1000": {"m": 9, "n": 11, "k": 1000},
        "row_1x200x300": {"m": 1, "n": 200, "k": 300},
        "column_300x1x211": {"m": 300, "n": 1, "k": 211},
        "outer_190x170x1": {"m": 190, "n": 170, "k": 1},
        "single_1x1x1": {"m": 1, "n": 1, "k": 1},
    }
    distributions = ("normal", "offset", "wide", "sparse")
    # Products of two of them stay in float32.
    domains: Mapping[str, tuple[float, float]] = {"a": (-1e15, 1e15), "b": (-1e15, 1e15)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """A and B, drawn alike."""
        draw = _DRAWS[distribution]
        m, n, k = problem["m"], problem["n"], problem["k"]
        return {"a": draw((m, k), generator), "b": draw((k, n), generator)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"c": Spec((problem["m"], problem["n"]), torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("m", "n", "k"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": inputs["a"].double() @ inputs["b"].double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """One float32 running sum per element, products added in order of k.

        Written out, because a library's own summation order differs between machines and the unit of the
        error budget should not.
        """
        a, b = inputs["a"], inputs["b"]
        total = torch.zeros(problem["m"], problem["n"], dtype=torch.float32, device=a.device)
        for k in range(problem["k"]):
            total += a[:, k : k + 1] * b[k : k + 1, :]
        return {"c": total}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """|A| |B|: the magnitude that rounding is proportional to, cancellation or not."""
        return {"c": (inputs["a"].double().abs() @ inputs["b"].double().abs()).clamp_min(_TINIEST)}

    def work(self, problem: Problem) -> Work:
        m, n, k = problem["m"], problem["n"], problem["k"]
        return Work(flops=2 * m * n * k, bytes=4 * (m * k + k * n + m * n))


def _normal(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device)


def _offset(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Mean 100: the sums grow with k, so a short accumulator loses digits."""
    return _normal(shape, generator) + 100


def _wide(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Magnitudes over 2^-20 to 2^20: a few products decide each element."""
    exponents = torch.randint(-20, 21, shape, generator=generator, device=generator.device)
    return torch.ldexp(_normal(shape, generator), exponents)


def _sparse(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Seven in ten are zeros, of both signs."""
    keep = torch.rand(shape, generator=generator, device=generator.device) < 0.3
    return _normal(shape, generator) * keep


_DRAWS = {"normal": _normal, "offset": _offset, "wide": _wide, "sparse": _sparse}
