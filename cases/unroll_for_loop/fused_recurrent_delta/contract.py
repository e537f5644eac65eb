"""The delta rule S += k (beta (v - S^T k))^T, o = S^T q, forward and backward: shapes, inputs, reference, work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn.functional import normalize, pad

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import changed, unlisted

CHUNK = 32
"""Tokens that the reference solves for at once; what they hand on goes from chunk to chunk."""

SMALLEST = 2.0**-100
"""What is smaller is held to this, not to its own size."""

WIDEST = 128
"""Elements of a key or a value at the most."""


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
    domains: Mapping[str, tuple[float, float]] = {
        "q": (-1e4, 1e4),
        "v": (-1e4, 1e4),
        "beta": (0, 1),
        "do": (-1e4, 1e4),
    }
    unmixed = "keys are of length one"

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

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """There stays one beta a token, or one for every value."""
        found = changed(problem, secret, ("batch", "heads"), ("length",), ("key", "value"))
        if problem["betas"] > 1:
            found = [{**other, "betas": other["value"]} for other in found]
        return unlisted(
            (other for other in found if max(other["key"], other["value"]) <= WIDEST), self.problems
        )

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return _joined(problem, _outputs(_solution(inputs, torch.float64)))

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Products, solutions and states in float32, rounded to bfloat16 at the end."""
        outputs = _joined(problem, _outputs(_solution(inputs, torch.float32)))
        return {name: x.bfloat16() for name, x in outputs.items()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """An element's own size and three times the root of the sum of squared terms of the chunked sum that gives it.

        That is how far roundings of the terms, each by itself, carry; the terms of u and of its gradient are those
        of the differences they are, and a product of two rows counts with its own terms, too: where a query and a key
        are orthogonal it says nothing. The state forgets errors as it forgets values.
        """
        squares = _joined(problem, _squares(_solution(inputs, torch.float64)))
        return {
            name: square.sqrt().mul_(3).add_(reference[name].abs()).clamp_min_(SMALLEST)
            for name, square in squares.items()
        }

    def work(self, problem: Problem) -> Work:
        """Token by token a multiply-add an element of the state for S^T k, S, o and dq, and seven more backwards."""
        tokens = problem["batch"] * problem["heads"] * problem["length"]
        key, value = problem["key"], problem["value"]
        elements = 4 * key + 4 * value + 2 * problem["betas"]
        return Work(flops=22 * tokens * key * value, bytes=2 * tokens * elements)


def _shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    tokens = (problem["batch"], problem["heads"], problem["length"])
    sizes = {"q": "key", "k": "key", "v": "value", "beta": "betas", "do": "value"}
    return {name: (*tokens, problem[size]) for name, size in sizes.items()}


def _solution(inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """Everything that the outputs and their squares are products of, as (chunks, batch * heads, rows, columns).

    In a chunk from state S, with A = k k^T below the diagonal and P = q k^T on and below it, u solves
    (I + beta A) u = beta (v - k S), a system for each value where betas differ. Backwards, with D the gradient of the
    state after the chunk, x solves the transposed system for P^T do + k D, and the rest is products.
    """
    chunks = {name: _chunked(x.to(dtype)) for name, x in inputs.items()}
    q, k, v, do, beta = (chunks[name] for name in ("q", "k", "v", "do", "beta"))
    factor, below = q.shape[-1] ** -0.5, (k @ k.mT).tril(-1)
    seen = factor * (q @ k.mT).tril()
    system = below[:, :, None] * beta.mT[..., None]
    u, state = _forward(k, v, beta, system)
    x, after = _backward(k, beta, system, seen.mT @ do, factor * q.mT @ do)
    dv, error, back = beta * x, v - k @ state - below @ u, factor * (do @ u.mT).tril()
    dbelow = -(dv @ u.mT).tril(-1)
    chunks |= {"below": below, "seen": seen, "u": u, "state": state, "x": x, "after": after}
    return chunks | {"dv": dv, "error": error, "back": back, "dbelow": dbelow}


def _forward(
    k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, system: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """u of every chunk and the state before it; only what needs that state waits for it.

    On a GPU the loop takes as long as its launches take one after another, however little each has to do.
    """
    states, us = [torch.zeros_like(k[0].mT @ v[0])], []
    for k_i, v_i, beta_i, system_i in zip(k, v, beta, system, strict=True):
        wanted = beta_i * torch.baddbmm(v_i, k_i, states[-1], alpha=-1)
        us.append(_solved(system_i, wanted, upper=False))
        states.append(torch.baddbmm(states[-1], k_i.mT, us[-1]))
    return torch.stack(us), torch.stack(states[:-1])


def _backward(
    k: torch.Tensor, beta: torch.Tensor, system: torch.Tensor, given: torch.Tensor, own: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """x of every chunk and the gradient of the state after it; `given` and `own` are what do gives x and that state."""
    afters, xs = [torch.zeros_like(own[0])], []
    parts = list(zip(k, beta, system, given, own, strict=True))
    for k_i, beta_i, system_i, given_i, own_i in reversed(parts):
        xs.append(_solved(system_i.mT, torch.baddbmm(given_i, k_i, afters[-1]), upper=True))
        afters.append(torch.baddbmm(afters[-1] + own_i, k_i.mT, beta_i * xs[-1], alpha=-1))
    return torch.stack(xs[::-1]), torch.stack(afters[-2::-1])


def _outputs(solution: Tensors) -> Tensors:
    """Of every chunk; dbeta for every value."""
    q, k, do, factor = *(solution[name] for name in ("q", "k", "do")), solution["q"].shape[-1] ** -0.5
    u, state, dv, after = (solution[name] for name in ("u", "state", "dv", "after"))
    back, dbelow = solution["back"], solution["dbelow"]
    return {
        "o": factor * q @ state + solution["seen"] @ u,
        "dq": factor * do @ state.mT + back @ k,
        "dk": (dbelow + dbelow.mT) @ k - dv @ state.mT + back.mT @ q + u @ after.mT,
        "dv": dv,
        "dbeta": solution["x"] * solution["error"],
    }


def _squares(solution: Tensors) -> Tensors:
    """For each element of the outputs, the sum of the squared terms of the last sums that lead to it.

    Takes the solution's memory for its squares.
    """
    factor = solution["q"].shape[-1] ** -1.0
    square = {name: x.square_() for name, x in solution.items()}
    q, k, do, beta = (square[name] for name in ("q", "k", "do", "beta"))
    below = (k @ k.mT).tril(-1) + square["below"]
    seen = factor * (q @ k.mT).tril() + square["seen"]
    state, after = _spread(square["state"]), _spread(square["after"])
    error = square["v"] + k @ state + below @ square["u"]
    u = beta * error
    back = factor * (do @ u.mT).tril() + square["back"]
    x = seen.mT @ do + k @ after + below.mT @ square["dv"]
    dv = beta * x
    dbelow = (dv @ u.mT).tril(-1) + square["dbelow"]
    return {
        "o": factor * q @ state + seen @ u,
        "dq": factor * do @ state.mT + back @ k,
        "dk": (dbelow + dbelow.mT) @ k + dv @ state.mT + back.mT @ q + u @ after.mT,
        "dv": dv,
        "dbeta": square["x"] * error + square["error"] * x,
    }


def _chunked(x: torch.Tensor) -> torch.Tensor:
    """(batch, heads, length, size) as (chunks, batch * heads, CHUNK, size), the last chunk filled up with zeros."""
    x = pad(x, (0, 0, 0, -x.shape[2] % CHUNK))
    return x.unflatten(2, (-1, CHUNK)).flatten(0, 1).transpose(0, 1).contiguous()


def _joined(problem: Problem, chunks: Tensors) -> Tensors:
    """Outputs of chunks in the outputs' shapes, dbeta summed where a head's values share one beta."""
    if problem["betas"] == 1:
        chunks = chunks | {"dbeta": chunks["dbeta"].sum(-1, keepdim=True)}
    heads, length = (problem["batch"], problem["heads"]), problem["length"]
    return {
        name: x.transpose(0, 1).flatten(1, 2)[:, :length].unflatten(0, heads) for name, x in chunks.items()
    }


def _spread(square: torch.Tensor) -> torch.Tensor:
    """Squares of a state, each with the mean of its column: no element is better known than the keys that wrote it."""
    return square.add_(square.mean(-2, keepdim=True))


def _solved(system: torch.Tensor, wanted: torch.Tensor, upper: bool) -> torch.Tensor:
    """x of (I + system) x = wanted; one system for all columns of `wanted`, or one for each."""
    right = wanted[:, None] if system.shape[1] == 1 else wanted.mT[..., None]
    x = torch.linalg.solve_triangular(system, right, upper=upper, unitriangular=True)
    return x[:, 0] if system.shape[1] == 1 else x[..., 0].mT


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
