"""Retention h = decay*h + k v^T, o = h^T q, forward and backward: shapes, inputs, reference, compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn.functional import pad

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

CHUNK = 64
"""Tokens that the reference handles as one matrix; what they hand on goes from chunk to chunk."""

SMALLEST = 2.0**-100
"""What is left of a token below this is held to it, not to its own size: decays reach it, and float32 ends."""

WIDEST = 128
"""Elements of a key or a value at the most."""


def _sizes(batch: int, heads: int, length: int, key: int, value: int) -> Problem:
    return {"batch": batch, "heads": heads, "length": length, "key": key, "value": value}


class Contract(contract.Contract):
    """q, k (batch, heads, length, key) and v, do (batch, heads, length, value), all bfloat16, contiguous.

    h_t = g h_{t-1} + k_t v_t^T from h = 0 with g = 1 - 2^(-5 - head); o_t = h_t^T q_t / sqrt(key). Outputs are o and
    the gradients dq, dk, dv of sum(o * do), bfloat16.
    """

    problems: Mapping[str, Problem] = {
        "train_8x16x4096x64": _sizes(8, 16, 4096, 64, 64),
        "wide_4x8x4096x128": _sizes(4, 8, 4096, 128, 128),
        "long_1x4x65536x64": _sizes(1, 4, 65536, 64, 64),
        "short_64x16x128x64": _sizes(64, 16, 128, 64, 64),
        "ragged_3x5x1333x48x80": _sizes(3, 5, 1333, 48, 80),
        "odd_1x2x77x17x33": _sizes(1, 2, 77, 17, 33),
        "small_2x4x8x16": _sizes(2, 4, 8, 16, 16),
        "step_3x1x1x20x9": _sizes(3, 1, 1, 20, 9),
        "thin_1x3x21x1x1": _sizes(1, 3, 21, 1, 1),
        "single_1x1x1x1": _sizes(1, 1, 1, 1, 1),
    }
    distributions = ("normal", "offset", "early", "rising")
    domains: Mapping[str, tuple[float, float]] = {
        "q": (-1e4, 1e4),
        "k": (-1e4, 1e4),
        "v": (-1e4, 1e4),
        "do": (-1e4, 1e4),
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        tensors = {
            name: torch.randn(
                shape, generator=generator, dtype=torch.bfloat16, device=generator.device
            )
            for name, shape in zip(("q", "k", "v", "do"), _shapes(problem), strict=True)
        }  # fmt: skip
        _SHAPED[distribution](tensors)
        return tensors

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        query, key, value, _ = _shapes(problem)
        shapes = {"o": value, "dq": query, "dk": key, "dv": value}
        return {name: Spec(shape, torch.bfloat16) for name, shape in shapes.items()}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        found = neighbours(problem, secret, self.problems, ("batch", "heads"), ("length",), ("key", "value"))
        return [other for other in found if max(other["key"], other["value"]) <= WIDEST]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return _retention(*(x.double() for x in inputs.values()))

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Products, states and sums in float32, rounded to bfloat16 at the end."""
        found = _retention(*(x.float() for x in inputs.values()))
        return {name: value.bfloat16() for name, value in found.items()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """An element's own size and twice the root of the sum of its squared terms, of the last sum and of all.

        That is how far roundings of the terms, each by itself, carry; the sum of absolute terms would excuse
        anything after 65536 tokens.
        """
        last = _retention(*(x.double() for x in inputs.values()), squared=True)
        every = _retention(*(x.double().square_() for x in inputs.values()), power=2)
        return {
            name: value.add_(every[name]).sqrt_().mul_(2).add_(reference[name].abs()).clamp_min_(SMALLEST)
            for name, value in last.items()
        }

    def work(self, problem: Problem) -> Work:
        """Token by token: h, o, dq, the gradient of h, dk and dv are a multiply-add an element of h each."""
        tokens = problem["batch"] * problem["heads"] * problem["length"]
        key, value = problem["key"], problem["value"]
        return Work(flops=12 * tokens * key * value, bytes=2 * tokens * 4 * (key + value))


def _shapes(problem: Problem) -> list[tuple[int, ...]]:
    """Of q, k, v and do."""
    tokens = (problem["batch"], problem["heads"], problem["length"])
    return [(*tokens, problem[size]) for size in ("key", "key", "value", "value")]


def _retention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, power: int = 1, squared: bool = False
) -> Tensors:
    """o and the gradients in chunks, decays and factors to this power; or the last sums of their squared terms.

    With S = q k^T * D and dS = do v^T * D, where D_ij = g^(i-j) for i >= j, a chunk's o = S v, dq = dS k, dk = dS^T q
    and dv = S^T do, and what comes out of other chunks on top.
    """
    length, dtype, factor = q.shape[2], q.dtype, q.shape[-1] ** (-0.5 * power)
    q, k, v, do = (
        pad(x, (0, 0, 0, -length % CHUNK)).unflatten(2, (-1, CHUNK)) for x in (q * factor, k, v, do)
    )
    heads = torch.arange(q.shape[1], dtype=torch.float64, device=q.device)[:, None, None]
    decay = (1 - torch.exp2(-5 - heads)) ** power
    token = torch.arange(CHUNK, dtype=torch.float64, device=q.device)
    away = token[:, None] - token
    near = torch.where(away >= 0, decay ** away.clamp_min(0), 0).to(dtype)[:, None]
    since, until = ((decay ** (n[:, None])).to(dtype)[:, None] for n in (token + 1, CHUNK - 1 - token))
    whole = (decay**CHUNK).to(dtype)
    h = _passed_on((k * until).mT @ v, whole)
    dh = _passed_on(((q * since).mT @ do).flip(2), whole).flip(2)
    s, ds = q @ k.mT * near, do @ v.mT * near
    if squared:
        q, k, v, do, s, ds, h, dh, since, until = (x**2 for x in (q, k, v, do, s, ds, h, dh, since, until))
        factor = factor**2
    found = {
        "o": s @ v + since * (q @ h),
        "dq": (ds @ k + since * (do @ h.mT)) * factor,
        "dk": ds.mT @ q + until * (v @ dh.mT),
        "dv": s.mT @ do + until * (k @ dh),
    }
    return {name: value.flatten(2, 3)[:, :, :length] for name, value in found.items()}


def _passed_on(added: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The state before each chunk, from what each one adds."""
    before = torch.zeros_like(added)
    for n in range(1, added.shape[2]):
        torch.addcmul(
            added[:, :, n - 1], whole.expand_as(added[:, :, 0]), before[:, :, n - 1], out=before[:, :, n]
        )
    return before


def _as_drawn(tensors: Tensors) -> None:
    pass


def _offset(tensors: Tensors) -> None:
    """Means of one: states grow to many times a token, and a short accumulator loses the tokens."""
    for x in tensors.values():
        x.add_(1)


def _early(tensors: Tensors) -> None:
    """Only the first tokens have keys, only the last have gradients: all that arrives came the whole way."""
    tensors["k"][:, :, 5:] = 0
    tensors["do"][:, :, :-5] = 0


def _rising(tensors: Tensors) -> None:
    """Values grow a thousandfold along the sequence, gradients shrink: a late token does not excuse an early one."""
    length = tensors["v"].shape[2]
    ramp = torch.linspace(-5, 5, length, device=tensors["v"].device).exp2_().to(torch.bfloat16)[:, None]
    tensors["v"].mul_(ramp)
    tensors["do"].mul_(ramp.flip(0))


_SHAPED: dict[str, Callable[[Tensors], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "early": _early,
    "rising": _rising,
}
