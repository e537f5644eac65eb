"""out = x w^T on one GPU, {{m}} x {{n}} x {{k}} in {{dtype}}: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours


class Kind(NamedTuple):
    """What depends on the dtype. Powers are of two."""

    own: torch.dtype
    """Of x, w and out."""
    largest: float
    """Magnitude of an element at the most. Of f16 some dozens of products of two of them stay in float16."""
    mean: float
    """Of all elements where they have an offset. Sums of f16 stay in float16 then up to k = 200000."""
    spike: float
    """What one column is multiplied by."""
    lowest: int
    highest: int
    """Powers that whole rows are multiplied by."""


KINDS = {
    "bf16": Kind(torch.bfloat16, 1e4, 1.0, 32, -8, 8),
    "f16": Kind(torch.float16, 32, 0.5, 8, -10, 2),
}

DTYPE = "{{dtype}}"
KIND = KINDS[DTYPE]
M, N, K = map(int, ["{{m}}", "{{n}}", "{{k}}"])

TINY = torch.finfo(torch.float16).tiny if DTYPE == "f16" else 2.0**-100
"""Sums below this are held to it, not to their own size: they may be rounded to zero."""

ROW_BYTES = 16
"""TMA takes rows that are whole numbers of it."""

UNITS = {"m": 1, "n": ROW_BYTES // KIND.own.itemsize, "k": ROW_BYTES // KIND.own.itemsize}
"""What each size is a multiple of: so are rows of out, which are n long, and rows of x and w, which are k long."""

HALF_ULP = 2.0**-24
"""Of a float32 sum: what each of its additions may lose. As much upwards as downwards, so that k of them lose sqrt(k)
(Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815)."""

DEPTH = 16
"""Products that a tensor core adds to a sum at once. It cuts off what float32 does not hold: half an ulp in the mean,
always towards zero (Fasi et al., PeerJ Comput. Sci. 7 (2021) e330). A sum that rises and falls again loses that in each
step."""

PREFIXES = 8
"""Parts of k after which sums are looked at, for how high they rise."""


def problem(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


class Contract(contract.Contract):
    """x is m x k, w is n x k, out is m x n, all row-major and of one dtype."""

    problems: Mapping[str, Problem] = {
        "main": problem(M, N, K),
        "middling_192x320x256": problem(192, 320, 256),
        "edges_257x264x272": problem(257, 264, 272),
        "prime_131x136x144": problem(131, 136, 144),
        "short_67x104x48": problem(67, 104, 48),
        "tall_1031x8x80": problem(1031, 8, 80),
        "long_24x8x4112": problem(24, 8, 4112),
        "row_1x1032x304": problem(1, 1032, 304),
        "least_1x8x16": problem(1, 8, 16),
    }
    distributions = ("normal", "offset", "wide", "spike", "sparse")
    domains: Mapping[str, tuple[float, float]] = dict.fromkeys(("x", "w"), (-KIND.largest, KIND.largest))

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and w: drawn in their dtype, and shaped in at most two more passes."""
        m, n, k = problem["m"], problem["n"], problem["k"]
        x, w = (
            torch.randn(shape, generator=generator, dtype=KIND.own, device=generator.device)
            for shape in ((m, k), (n, k))
        )
        _SHAPED[distribution](x, w, generator)
        return {"x": x, "w": w}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        """out, m x n; the kernel is called as run(x, w, out)."""
        return {"out": Spec((problem["m"], problem["n"]), KIND.own)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """Sizes near these in units of what TMA takes, so that every row still begins at a multiple of 16 bytes."""
        listed = {name: _in_units(other) for name, other in self.problems.items()}
        found = neighbours(_in_units(problem), secret, listed, ("m",), ("n", "k"))
        return [{name: units * UNITS[name] for name, units in other.items()} for other in found]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """out in float64, m x n."""
        return {"out": inputs["x"].double() @ inputs["w"].double().T}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The product in float32, rounded once. All operands fit TF32, so it may multiply in that as well."""
        return {"out": (inputs["x"].float() @ inputs["w"].float().T).to(KIND.own)}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """One rounding of the result, of k float32 additions, and what is cut off of sums on their way:
        |out| + (u32 / eps) (sqrt(k) |x| |w|^T + k / 16 (highest - lowest sum of a part of k))."""
        x, w = inputs["x"].double(), inputs["w"].double()
        lost = (x.abs() @ w.abs().T).mul_(problem["k"] ** 0.5 * HALF_ULP)
        lost.add_(_range(x, w), alpha=HALF_ULP * problem["k"] / DEPTH)
        eps = torch.finfo(KIND.own).eps
        return {"out": lost.div_(eps).add_(reference["out"].abs()).clamp_min_(TINY)}

    def work(self, problem: Problem) -> Work:
        """Operations, a product and a sum for each of m n k; bytes of x and w read once and out written once."""
        m, n, k = problem["m"], problem["n"], problem["k"]
        return Work(flops=2 * m * n * k, bytes=KIND.own.itemsize * ((m + n) * k + m * n))


def _range(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Of all sums x w^T of the first columns, the highest less the lowest, m x n; the empty sum is one."""
    total = x.new_zeros(len(x), len(w))
    highest, lowest = total.clone(), total.clone()
    step = -(-x.shape[1] // PREFIXES)
    for first in range(0, x.shape[1], step):
        total.addmm_(x[:, first : first + step], w[:, first : first + step].T)
        torch.maximum(highest, total, out=highest)
        torch.minimum(lowest, total, out=lowest)
    return highest.sub_(lowest)


def _in_units(problem: Problem) -> dict[str, int]:
    return {name: problem[name] // unit for name, unit in UNITS.items()}


def _as_drawn(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    pass


def _offset(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """Sums that grow with k: an accumulator of few bits stops growing."""
    x.add_(KIND.mean)
    w.add_(KIND.mean)


def _wide(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """Each row of x and of w has a power of two of its own: an element of the wrong place is far off."""
    x.mul_(_powers(len(x), generator))
    w.mul_(_powers(len(w), generator))


def _spike(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """One k, anywhere, outweighs the others: a step that is skipped or taken twice shows in every element."""
    column = torch.randint(x.shape[1], (1,), generator=generator, device=x.device)
    x.mul_(torch.ones(x.shape[1], dtype=x.dtype, device=x.device).index_fill_(0, column, KIND.spike))


def _sparse(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """Seven in ten elements of x are zeros."""
    x.mul_(torch.rand(x.shape, generator=generator, dtype=torch.float32, device=x.device) < 0.3)


def _powers(rows: int, generator: torch.Generator) -> torch.Tensor:
    shape = (rows, 1)
    exponents = torch.randint(
        KIND.lowest, KIND.highest + 1, shape, generator=generator, device=generator.device
    )
    return torch.exp2(exponents.to(torch.float32)).to(KIND.own)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Generator], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "wide": _wide,
    "spike": _spike,
    "sparse": _sparse,
}
