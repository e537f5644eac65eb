"""C = A B of float16 or float8 (e4m3) matrices, in float16: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

HALF, FLOAT8 = torch.float16, torch.float8_e4m3fn
EPS, TINY = torch.finfo(HALF).eps, torch.finfo(HALF).tiny

HALF_ULP = 2.0**-24
"""Of a float32 sum: what each of its additions may lose. As much upwards as downwards, so that k of them lose sqrt(k)
(Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815); tensor cores cut off, which comes to a twentieth of that."""

SHORT_SUM = 2.0**-11
"""What a sum of some hundred products of float8 may lose in a Hopper tensor core, which keeps 14 bits of it."""

DEEPEST = 40000
"""Products in a sum at the most: of many more, where they are around 1, the sum leaves float16."""


def half(m: int, n: int, k: int, transposed: bool = False) -> dict[str, int | str | bool]:
    return {"m": m, "n": n, "k": k, "dtype": "float16", "transposed": transposed}


def float8(m: int, n: int, k: int, transposed: bool = True) -> dict[str, int | str | bool]:
    return {"m": m, "n": n, "k": k, "dtype": "float8_e4m3fn", "transposed": transposed}


class Contract(contract.Contract):
    """A is m x k, B is k x n or, transposed, n x k; C is m x n and float16; all row-major and contiguous."""

    problems: Mapping[str, Problem] = {
        "square_8192": half(8192, 8192, 8192),
        "square_8192_fp8": float8(8192, 8192, 8192),
        "layer_8192x14336x4096": half(8192, 14336, 4096, transposed=True),
        "tall_65536x512x4096_fp8": float8(65536, 512, 4096),
        "long_1024x1024x32768": half(1024, 1024, 32768),
        "long_2048x1024x32768_fp8": float8(2048, 1024, 32768),
        "batch_16x16384x32768_fp8": float8(16, 16384, 32768),
        "ragged_4099x4093x4111": half(4099, 4093, 4111),
        "ragged_4100x4104x4100_fp8": float8(4100, 4104, 4100, transposed=False),
        "small_256x128x256": half(256, 128, 256),
        "small_256x128x256_fp8": float8(256, 128, 256),
        "middling_192x320x136": half(192, 320, 136, transposed=True),
        "middling_192x208x144_fp8": float8(192, 208, 144, transposed=False),
        "deep_24x16x1544": half(24, 16, 1544),
        "deep_24x16x1552_fp8": float8(24, 16, 1552),
        "odd_67x129x95": half(67, 129, 95, transposed=True),
        "odd_67x129x95_fp8": float8(67, 129, 95),
        "ragged_61x70x100_fp8": float8(61, 70, 100, transposed=False),
        "row_1x200x301": half(1, 200, 301),
        "column_101x1x64_fp8": float8(101, 1, 64),
        "outer_65x40x1_fp8": float8(65, 40, 1),
        "single_1x1x1": half(1, 1, 1),
    }
    distributions = ("normal", "offset", "wide", "spike")
    # A few products of two of them stay in float16.
    domains: Mapping[str, tuple[float, float]] = {"a": (-64, 64), "b": (-64, 64)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """A and B: drawn in float16, shaped in at most one more pass, and rounded once more where they are float8."""
        m, n, k, dtype = problem["m"], problem["n"], problem["k"], getattr(torch, problem["dtype"])
        a, b = (
            torch.randn(shape, generator=generator, dtype=HALF, device=generator.device)
            for shape in ((m, k), (n, k) if problem["transposed"] else (k, n))
        )
        _SHAPED[distribution](a, b.T if problem["transposed"] else b, dtype, generator)
        return {"a": a.to(dtype), "b": b.to(dtype)}

    def attributes(self, problem: Problem) -> dict[str, bool]:
        return {"transposed": problem["transposed"]}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"c": Spec((problem["m"], problem["n"]), HALF)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        found = neighbours(problem, secret, self.problems, ("m", "n", "k"))
        return [other for other in found if other["k"] <= DEEPEST]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        a, b = _operands(problem, inputs)
        return {"c": a.double() @ b.double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """For float8 too the product in float16, which holds each of its numbers: torch has no plain one."""
        a, b = _operands(problem, inputs)
        return {"c": torch.matmul(a.to(HALF), b.to(HALF))}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """One rounding of the result, and of k float32 additions in any order: |C| + sqrt(k) (u32 / eps) |A| |B|.

        For float8 also of the tensor cores' short sums, each of some hundred products.
        """
        a, b = _operands(problem, inputs)
        loss = problem["k"] ** 0.5 * HALF_ULP + (SHORT_SUM if inputs["a"].dtype == FLOAT8 else 0)
        terms = a.double().abs_() @ b.double().abs_()
        return {"c": terms.mul_(loss / EPS).add_(reference["c"].abs()).clamp_min_(TINY)}

    def work(self, problem: Problem) -> Work:
        m, n, k, item = problem["m"], problem["n"], problem["k"], getattr(torch, problem["dtype"]).itemsize
        return Work(flops=2 * m * n * k, bytes=item * (m * k + k * n) + HALF.itemsize * m * n)


def _operands(problem: Problem, inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B as they are multiplied."""
    return inputs["a"], inputs["b"].T if problem["transposed"] else inputs["b"]


def _as_drawn(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    pass


def _offset(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Means of 1, so that sums grow with k: an accumulator of fewer bits than float32 stops growing."""
    a.mul_(0.5).add_(1)
    b.mul_(0.5).add_(1)


def _wide(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Each row of A and column of B has a power of two of its own: an element of the wrong place is far off."""
    lowest = -4 if dtype == FLOAT8 else -10
    a.mul_(_powers(lowest, a.shape[0], generator)[:, None])
    b.mul_(_powers(lowest, b.shape[1], generator))


def _spike(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    """One k, anywhere, outweighs the others: a step that is skipped or taken twice shows in every element."""
    factors = torch.ones(a.shape[1], dtype=HALF, device=a.device)
    factor = 8 if dtype == FLOAT8 else 32
    factors.index_fill_(0, torch.randint(a.shape[1], (1,), generator=generator, device=a.device), factor)
    a.mul_(factors)


def _powers(lowest: int, length: int, generator: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(lowest, 3, (length,), generator=generator, device=generator.device)
    return torch.exp2(exponents.to(torch.float32)).to(HALF)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.dtype, torch.Generator], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "wide": _wide,
    "spike": _spike,
}
