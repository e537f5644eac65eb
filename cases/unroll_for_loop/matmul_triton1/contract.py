"""C = A B in bfloat16: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

DTYPE = torch.bfloat16
EPS = torch.finfo(DTYPE).eps

SMALLEST = 2.0**-100
"""Sums below this are held to it, not to their own size: they may be rounded to zero."""

HALF_ULP = 2.0**-24
"""Of a float32 sum: what each of its additions may lose. As much upwards as downwards, so that k of them lose sqrt(k)
(Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815); tensor cores cut off, which comes to a twentieth of that."""


def problem(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


class Contract(contract.Contract):
    """A is m x k, B is k x n, C is m x n; all bfloat16, row-major and contiguous."""

    problems: Mapping[str, Problem] = {
        "square_4096": problem(4096, 4096, 4096),
        "square_8192": problem(8192, 8192, 8192),
        "tall_65536x512x2048": problem(65536, 512, 2048),
        "long_1024x1024x32768": problem(1024, 1024, 32768),
        "skinny_32x16384x16384": problem(32, 16384, 16384),
        "ragged_4099x4093x4111": problem(4099, 4093, 4111),
        "small_16": problem(16, 16, 16),
        "middling_192x320x136": problem(192, 320, 136),
        "deep_24x16x1544": problem(24, 16, 1544),
        "odd_67x129x95": problem(67, 129, 95),
        "ragged_130x72x100": problem(130, 72, 100),
        "row_1x200x301": problem(1, 200, 301),
        "column_201x1x64": problem(201, 1, 64),
        "outer_65x40x1": problem(65, 40, 1),
        "single_1x1x1": problem(1, 1, 1),
    }
    distributions = ("normal", "offset", "wide", "spike")
    domains: Mapping[str, tuple[float, float]] = {"a": (-1e4, 1e4), "b": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """A and B: drawn in one pass each and shaped in at most one more."""
        m, n, k = problem["m"], problem["n"], problem["k"]
        a, b = (
            torch.randn(shape, generator=generator, dtype=DTYPE, device=generator.device)
            for shape in ((m, k), (k, n))
        )
        _SHAPED[distribution](a, b, generator)
        return {"a": a, "b": b}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"c": Spec((problem["m"], problem["n"]), DTYPE)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("m", "n", "k"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": inputs["a"].double() @ inputs["b"].double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": torch.matmul(inputs["a"], inputs["b"])}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """One rounding of the result, and of k float32 additions in any order: |C| + sqrt(k) (u32 / eps) |A| |B|."""
        terms = inputs["a"].double().abs_() @ inputs["b"].double().abs_()
        return {
            "c": terms.mul_(problem["k"] ** 0.5 * HALF_ULP / EPS)
            .add_(reference["c"].abs())
            .clamp_min_(SMALLEST)
        }

    def work(self, problem: Problem) -> Work:
        m, n, k = problem["m"], problem["n"], problem["k"]
        return Work(flops=2 * m * n * k, bytes=DTYPE.itemsize * (m * k + k * n + m * n))


def _as_drawn(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    pass


def _offset(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    """Means of 1, so that sums grow with k: an accumulator of fewer bits than float32 stops growing."""
    a.mul_(0.5).add_(1)
    b.mul_(0.5).add_(1)


def _wide(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    """Each row of A and column of B has a power of two of its own: an element of the wrong place is far off."""
    a.mul_(_powers(a.shape[0], generator)[:, None])
    b.mul_(_powers(b.shape[1], generator))


def _spike(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    """One k, anywhere, outweighs the others: a step that is skipped or taken twice shows in every element."""
    factors = torch.ones(a.shape[1], dtype=DTYPE, device=a.device)
    factors.index_fill_(0, torch.randint(a.shape[1], (1,), generator=generator, device=a.device), 32)
    a.mul_(factors)


def _powers(length: int, generator: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(-8, 9, (length,), generator=generator, device=generator.device)
    return torch.exp2(exponents.to(torch.float32)).to(DTYPE)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Generator], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "wide": _wide,
    "spike": _spike,
}
