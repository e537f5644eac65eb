"""The delta rule S += k (beta (v - S^T k))^T, o = S^T q, forward and backward: shapes, inputs, reference, work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import normalize, pad

from harness.case import contract
from harness.case.contract import Problem, Spec, Tensors, Work

CHUNK = 32
"""Tokens that the reference solves for at once; what they hand on goes from chunk to chunk."""

SMALLEST = 2.0**-100
"""What is smaller is held to this, not to its own size."""


def _sizes(batch: int, heads: int, length: int, key: int, value: int, betas: int = 1) -> Problem:
    """`betas` a token: 1, or one for every value."""
    return {"batch": batch, "heads": heads, "length": length, "key": key, "value": value, "betas": betas}


class Contract(contract.Contract):
    """q, k (batch, heads, length, key), v, do (..., value), beta (..., betas), all bfloat16, contiguous.

    u_t = beta_t (v_t - S_{t-1}^T k_t), S_t = S_{t-1} + k_t u_t^T from S = 0, o_t = S_t^T q_t / sqrt(key). Keys are of
    length one, beta is in [0, 1]; betas is 1 (for a head) or value (for each element). Outputs are o and the
    gradients dq, dk, dv, dbeta of sum(o * do), bfloat16.
    """

    problems: Mapping[str, Problem] = {
        "train_8x16x4096x64": _sizes(8, 16, 4096, 64, 64),
        "element_8x16x2048x64": _sizes(8, 16, 2048, 64, 64, 64),
        "long_1x4x32768x64": _sizes(1, 4, 32768, 64, 64),
        "short_64x16x128x64": _sizes(64, 16, 128, 64, 64),
        "wide_4x8x2048x128": _sizes(4, 8, 2048, 128, 128),
        "ragged_3x5x1333x48x80": _sizes(3, 5, 1333, 48, 80, 80),
        "odd_1x2x45x17x33": _sizes(1, 2, 45, 17, 33),
        "odd_element_1x2x37x20x9": _sizes(1, 2, 37, 20, 9, 9),
        "small_2x4x8x16x32": _sizes(2, 4, 8, 16, 32),
        "small_element_2x4x8x16x32": _sizes(2, 4, 8, 16, 32, 32),
        "step_3x1x1x20x9": _sizes(3, 1, 1, 20, 9),
        "single_1x1x1x1": _sizes(1, 1, 1, 1, 1),
    }
    distributions = ("normal", "alike", "overwriting", "offset", "idle")

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        tensors = {
            name: torch.randn(shape, generator=generator, device=generator.device)
            for name, shape in _shapes(problem).items()
        }
        tensors["beta"].sigmoid_()
        _SHAPED[distribution](tensors)
        tensors["k"] = normalize(tensors["k"], dim=-1)
        return {name: x.bfloat16() for name, x in tensors.items()}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        shapes = _shapes(problem)
        given = {"o": "v", "dq": "q", "dk": "k", "dv": "v", "dbeta": "beta"}
        return {name: Spec(shapes[like], torch.bfloat16) for name, like in given.items()}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return _delta_rule(inputs, torch.float64)[0]

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Products, solutions and states in float32, rounded to bfloat16 at the end."""
        return {name: x.bfloat16() for name, x in _delta_rule(inputs, torch.float32)[0].items()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """An element's own size and three times the root of the sum of squared terms of the chunked sum that gives it.

        That is how far roundings of the terms, each by itself, carry; the terms of u and of its gradient are those
        of the differences they are. The state forgets errors as it forgets values.
        """
        squares = _delta_rule(inputs, torch.float64)[1]
        return {
            name: square.sqrt().mul_(3).add_(reference[name].abs()).clamp_min_(SMALLEST)
            for name, square in squares.items()
        }

    def work(self, problem: Problem) -> Work:
        """Token by token a multiply-add an element of the state for S^T k, S, o and dq, and twice as many backwards."""
        tokens = problem["batch"] * problem["heads"] * problem["length"]
        key, value = problem["key"], problem["value"]
        elements = 4 * key + 4 * value + 2 * problem["betas"]
        return Work(flops=22 * tokens * key * value, bytes=2 * tokens * elements)


def _shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    tokens = (problem["batch"], problem["heads"], problem["length"])
    sizes = {"q": "key", "k": "key", "v": "value", "beta": "betas", "do": "value"}
    return {name: (*tokens, problem[size]) for name, size in sizes.items()}


def _delta_rule(inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensors]:
    """Outputs, and for each element the sum of the squared terms of the last sums that lead to it.

    In a chunk from state S, with A = k k^T below the diagonal and P = q k^T on and below it, u solves
    (I + beta A) u = beta (v - k S), a system for each value where betas differ. Backwards, with D the gradient of the
    state after the chunk, x solves the transposed system for P^T do + k D, and the rest is products.
    """
    length, betas = inputs["q"].shape[2], inputs["beta"].shape[3]
    padded = {
        name: pad(x.to(dtype), (0, 0, 0, -length % CHUNK)).unflatten(2, (-1, CHUNK)).unbind(2)
        for name, x in inputs.items()
    }
    chunks = [dict(zip(padded, parts, strict=True)) for parts in zip(*padded.values(), strict=True)]
    state = torch.zeros_like(chunks[0]["k"].mT @ chunks[0]["v"])
    for chunk in chunks:
        state = _forward(chunk, state)
    state = torch.zeros_like(state)
    for chunk in reversed(chunks):
        state = _backward(chunk, state, betas)
    names = ("o", "dq", "dk", "dv", "dbeta")
    outputs, squares = (
        {name: torch.cat([chunk[prefix + name] for chunk in chunks], 2)[:, :, :length] for name in names}
        for prefix in ("", "2")
    )
    return outputs, squares


def _forward(chunk: Tensors, state: torch.Tensor) -> torch.Tensor:
    """The state after a chunk; o, dq and what backward needs are left in it."""
    q, k, v, do, factor = *(chunk[name] for name in ("q", "k", "v", "do")), chunk["q"].shape[-1] ** -0.5
    below = (k @ k.mT).tril(-1)
    system = below[:, :, None] * chunk["beta"].mT[..., None]
    wanted = chunk["beta"] * (v - k @ state)
    u = _solved(system, wanted, upper=False)
    seen, back = factor * (q @ k.mT).tril(), factor * (do @ u.mT).tril()
    chunk |= {"below": below, "system": system, "u": u, "seen": seen, "back": back, "state": state}
    error_square = v**2 + k**2 @ _spread(state) + below**2 @ u**2
    u_square = chunk["beta"] ** 2 * error_square
    chunk |= {"2error": error_square, "2u": u_square}
    chunk["o"] = factor * q @ state + seen @ u
    chunk["2o"] = factor**2 * q**2 @ _spread(state) + seen**2 @ u_square
    chunk["dq"] = factor * do @ state.mT + back @ k
    chunk["2back"] = factor**2 * (do**2 @ u_square.mT).tril() + back**2
    chunk["2dq"] = factor**2 * do**2 @ _spread(state).mT + chunk["2back"] @ k**2
    return state + k.mT @ u


def _backward(chunk: Tensors, after: torch.Tensor, betas: int) -> torch.Tensor:
    """The gradient of the state before a chunk, from that of the state after it; dk, dv, dbeta are left in it."""
    q, k, v, do, beta = (chunk[name] for name in ("q", "k", "v", "do", "beta"))
    below, seen, u, back, state = (chunk[name] for name in ("below", "seen", "u", "back", "state"))
    given = seen.mT @ do + k @ after
    x = _solved(chunk["system"].mT, given, upper=True)
    dv = beta * x
    error = v - k @ state - below @ u
    dbelow = -(dv @ u.mT).tril(-1)
    chunk["dk"] = (dbelow + dbelow.mT) @ k - dv @ state.mT + back.mT @ q + u @ after.mT
    x_square = seen.mT**2 @ do**2 + k**2 @ _spread(after) + below.mT**2 @ dv**2
    dv_square = beta**2 * x_square
    twice = (dv_square @ chunk["2u"].mT).tril(-1) + dbelow**2
    chunk["2dk"] = (twice + twice.mT) @ k**2 + dv_square @ _spread(state).mT + chunk["2back"].mT @ q**2
    chunk["2dk"] += chunk["2u"] @ _spread(after).mT
    chunk["dv"], chunk["2dv"] = dv, dv_square
    dbeta, square = x * error, x**2 * chunk["2error"] + error**2 * x_square
    chunk["dbeta"] = dbeta.sum(-1, keepdim=True) if betas == 1 else dbeta
    chunk["2dbeta"] = square.sum(-1, keepdim=True) if betas == 1 else square
    for name in ("system", "below", "seen", "back", "2back", "2u", "2error", "state"):
        del chunk[name]
    return after + q.shape[-1] ** -0.5 * q.mT @ do - k.mT @ dv


def _spread(state: torch.Tensor) -> torch.Tensor:
    """Squares of a state, each with the mean of its column: no element is better known than the keys that wrote it."""
    square = state**2
    return square + square.mean(-2, keepdim=True)


def _solved(system: torch.Tensor, wanted: torch.Tensor, upper: bool) -> torch.Tensor:
    """x of (I + system) x = wanted; one system for all columns of `wanted`, or one for each."""
    right = wanted[:, :, None] if system.shape[2] == 1 else wanted.mT[..., None]
    x = torch.linalg.solve_triangular(system, right, upper=upper, unitriangular=True)
    return x[:, :, 0] if system.shape[2] == 1 else x[..., 0].mT


def _as_drawn(tensors: Tensors) -> None:
    pass


def _alike(tensors: Tensors) -> None:
    """Keys in nearly the same direction: the triangular system is full of ones, and powers of it overflow digits."""
    tensors["k"].mul_(0.2).add_(1)


def _overwriting(tensors: Tensors) -> None:
    """beta of one and few different keys: each token replaces what an earlier one wrote."""
    tensors["beta"].fill_(1)
    tensors["k"].copy_(
        tensors["k"][:, :, torch.arange(tensors["k"].shape[2], device=tensors["k"].device) % 3]
    )


def _offset(tensors: Tensors) -> None:
    """Means of two: predictions and what is predicted nearly cancel."""
    for name in ("q", "v", "do"):
        tensors[name].add_(2)


def _idle(tensors: Tensors) -> None:
    """Most tokens neither write nor ask for a gradient: a division by beta is a division by zero."""
    tensors["beta"][:, :, 3:].mul_(tensors["beta"][:, :, 3:] > 0.7)
    tensors["do"][:, :, :-3] *= tensors["do"][:, :, :-3] > 0.5


_SHAPED: dict[str, Callable[[Tensors], None]] = {
    "normal": _as_drawn,
    "alike": _alike,
    "overwriting": _overwriting,
    "offset": _offset,
    "idle": _idle,
}
