"""C = A B in float16, with or without a leaky ReLU: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

LEAKY, OTHER, NONE = (True, 0.01), (True, 0.2), (False, 0.01)
"""Whether there is an activation, and its slope where the product is negative."""

DTYPE = torch.float16
EPS, TINY = torch.finfo(DTYPE).eps, torch.finfo(DTYPE).tiny

HALF_ULP = 2.0**-24
"""Of a float32 sum: what each of its additions may lose. As much upwards as downwards, so that k of them lose sqrt(k)
(Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815); tensor cores cut off, which comes to a twentieth of that."""


NEAR_ZERO = 8 * EPS
"""Of what a sum may lose, in units of `scale`: nearer to zero than that its sign may be either."""

DEEPEST = 40000
"""Products in a sum at the most: of many more, where they are around 1, the sum leaves float16."""


def problem(m: int, n: int, k: int, activation: tuple[bool, float]) -> dict[str, int | float | bool]:
    leaky_relu, negative_slope = activation
    return {"m": m, "n": n, "k": k, "leaky_relu": leaky_relu, "negative_slope": negative_slope}


class Contract(contract.Contract):
    """A is m x k, B is k x n, C is m x n; all float16, row-major and contiguous."""

    problems: Mapping[str, Problem] = {
        "layer_16384x4096x4096": problem(16384, 4096, 4096, LEAKY),
        "square_4096": problem(4096, 4096, 4096, LEAKY),
        "square_4096_bare": problem(4096, 4096, 4096, NONE),
        "tall_131072x256x1024": problem(131072, 256, 1024, LEAKY),
        "long_1024x1024x32768": problem(1024, 1024, 32768, OTHER),
        "batch_64x28672x4096": problem(64, 28672, 4096, LEAKY),
        "ragged_4095x4097x2049": problem(4095, 4097, 2049, OTHER),
        "small_64x128x64": problem(64, 128, 64, LEAKY),
        "small_64x128x64_bare": problem(64, 128, 64, NONE),
        "middling_200x264x136": problem(200, 264, 136, OTHER),
        "deep_24x16x1544": problem(24, 16, 1544, LEAKY),
        "odd_67x129x95": problem(67, 129, 95, OTHER),
        "ragged_130x72x100": problem(130, 72, 100, NONE),
        "row_1x200x301": problem(1, 200, 301, LEAKY),
        "column_201x1x64": problem(201, 1, 64, LEAKY),
        "outer_65x40x1": problem(65, 40, 1, LEAKY),
        "single_1x1x1": problem(1, 1, 1, LEAKY),
    }
    distributions = ("normal", "sunken", "wide", "spike")
    # A few products of two of them stay in float16.
    domains: Mapping[str, tuple[float, float]] = {"a": (-64, 64), "b": (-64, 64)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """A and B: drawn in one pass each and shaped in at most one more."""
        m, n, k = problem["m"], problem["n"], problem["k"]
        a, b = (
            torch.randn(shape, generator=generator, dtype=DTYPE, device=generator.device)
            for shape in ((m, k), (k, n))
        )
        _SHAPED[distribution](a, b, generator)
        return {"a": a, "b": b}

    def attributes(self, problem: Problem) -> dict[str, bool | float]:
        return {"leaky_relu": problem["leaky_relu"], "negative_slope": problem["negative_slope"]}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"c": Spec((problem["m"], problem["n"]), DTYPE)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        found = neighbours(problem, secret, self.problems, ("m", "n", "k"))
        return [other for other in found if other["k"] <= DEEPEST]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": _activated(inputs["a"].double() @ inputs["b"].double(), problem)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": _activated(torch.matmul(inputs["a"], inputs["b"]), problem)}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """One rounding of the result, and of k float32 additions: |f(C)| + f'(C) sqrt(k) (u32 / eps) |A| |B|.

        C is A B, f the activation; where the additions may have changed C's sign, f' is 1.
        """
        lost = inputs["a"].double().abs_() @ inputs["b"].double().abs_()
        lost.mul_(problem["k"] ** 0.5 * HALF_ULP / EPS)
        if problem["leaky_relu"]:
            slope = problem["negative_slope"]
            lost.mul_(torch.where(reference["c"] < lost * (-NEAR_ZERO * slope), slope, 1.0))
        return {"c": lost.add_(reference["c"].abs()).clamp_min_(TINY)}

    def work(self, problem: Problem) -> Work:
        m, n, k = problem["m"], problem["n"], problem["k"]
        return Work(flops=2 * m * n * k, bytes=DTYPE.itemsize * (m * k + k * n + m * n))


def _activated(c: torch.Tensor, problem: Problem) -> torch.Tensor:
    return torch.where(c < 0, problem["negative_slope"] * c, c) if problem["leaky_relu"] else c


def _as_drawn(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    pass


def _sunken(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> None:
    """All sums far below zero and growing with k, as a short accumulator's do not; each is taken times the slope."""
    a.mul_(0.5).sub_(1)
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
    exponents = torch.randint(-10, 3, (length,), generator=generator, device=generator.device)
    return torch.exp2(exponents.to(torch.float32)).to(DTYPE)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Generator], None]] = {
    "normal": _as_drawn,
    "sunken": _sunken,
    "wide": _wide,
    "spike": _spike,
}
