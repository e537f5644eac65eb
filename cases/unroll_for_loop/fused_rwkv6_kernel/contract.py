"""RWKV6 S = exp(w) S + k v^T, o = (S + u k v^T)^T r per token: shapes, inputs, reference, compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn.functional import pad

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

CHUNK = 16
"""Tokens whose decays the reference takes pair by pair; what they hand on goes from chunk to chunk."""

SMALLEST = 2.0**-100
"""What is left of a token below this is held to it, not to its own size: decays reach it, and float32 ends."""

WIDEST = 128
"""Elements of a key or a value at the most."""


def _sizes(batch: int, heads: int, length: int, key: int, value: int) -> Problem:
    return {"batch": batch, "heads": heads, "length": length, "key": key, "value": value}


class Contract(contract.Contract):
    """r, k (batch, heads, length, key), v, o (batch, heads, length, value) bfloat16; w as k, u (heads, key) float32.

    o_t = (S_{t-1} + diag(u) k_t v_t^T)^T r_t and S_t = diag(exp(w_t)) S_{t-1} + k_t v_t^T from S = 0, with w <= 0.
    """

    problems: Mapping[str, Problem] = {
        "train_8x16x4096x64": _sizes(8, 16, 4096, 64, 64),
        "wide_4x8x4096x128": _sizes(4, 8, 4096, 128, 128),
        "long_1x4x65536x64": _sizes(1, 4, 65536, 64, 64),
        "short_64x16x128x64": _sizes(64, 16, 128, 64, 64),
        "ragged_3x5x1333x48x80": _sizes(3, 5, 1333, 48, 80),
        "odd_1x2x77x17x33": _sizes(1, 2, 77, 17, 33),
        "small_2x3x4x8": _sizes(2, 3, 4, 8, 8),
        "step_3x1x1x20x9": _sizes(3, 1, 1, 20, 9),
        "thin_1x3x21x1x1": _sizes(1, 3, 21, 1, 1),
        "single_1x1x1x1": _sizes(1, 1, 1, 1, 1),
    }
    distributions = ("normal", "lasting", "forgetful", "uneven", "early")
    domains: Mapping[str, tuple[float, float]] = {
        "r": (-1e4, 1e4),
        "k": (-1e4, 1e4),
        "v": (-1e4, 1e4),
        "w": (-1e4, 0),
        "u": (-1e4, 1e4),
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        tokens = (problem["batch"], problem["heads"], problem["length"])
        key, value = (*tokens, problem["key"]), (*tokens, problem["value"])
        r, k, v = (_drawn(shape, generator).bfloat16() for shape in (key, key, value))
        w, u = _drawn(key, generator), _drawn((problem["heads"], problem["key"]), generator)
        tensors = {"r": r, "k": k, "v": v, "w": w, "u": u}
        _SHAPED[distribution](tensors)
        return tensors

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        sizes = (problem[name] for name in ("batch", "heads", "length", "value"))
        return {"o": Spec(tuple(sizes), torch.bfloat16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        found = neighbours(problem, secret, self.problems, ("batch", "heads"), ("length",), ("key", "value"))
        return [other for other in found if max(other["key"], other["value"]) <= WIDEST]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"o": _rwkv6(**{name: x.double() for name, x in inputs.items()})}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Decays, products, states and sums in float32, rounded to bfloat16 at the end."""
        return {"o": _rwkv6(**{name: x.float() for name, x in inputs.items()}).bfloat16()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """An element's own size and twice the root of the sum of its squared terms, of the last sum and of all.

        That is how far roundings of the terms, each by itself, carry; the sum of absolute terms would excuse
        anything after 65536 tokens.
        """
        last = _rwkv6(**{name: x.double() for name, x in inputs.items()}, squared=True)
        squares = {name: x.double().square_() for name, x in inputs.items() if name != "w"}
        every = _rwkv6(**squares, w=2 * inputs["w"].double())
        return {"o": last.add_(every).sqrt_().mul_(2).add_(reference["o"].abs()).clamp_min_(SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """Token by token a product and two multiply-adds an element of the state, and the exponentials of w."""
        tokens = problem["batch"] * problem["heads"] * problem["length"]
        key, value = problem["key"], problem["value"]
        size = tokens * (2 * (2 * key + 2 * value) + 4 * key) + 4 * problem["heads"] * key
        return Work(flops=tokens * (5 * key * value + 4 * key), bytes=size)


def _drawn(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _rwkv6(
    r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor, u: torch.Tensor, squared: bool = False
) -> torch.Tensor:
    """o, or the last sums of its squared terms, in chunks of few tokens.

    Inside one, the decay of every pair of tokens and channel counts by itself; then come the states. Decays reach -10^9
    in a token, so what lies between two tokens is summed, never the difference of two running sums.
    """
    length = r.shape[2]
    itself = (r * u[:, None] * k).sum(-1, keepdim=True)
    bonus = itself**2 * v**2 if squared else itself * v
    r, k, v, w = (pad(x, (0, 0, 0, -length % CHUNK)).unflatten(2, (-1, CHUNK)) for x in (r, k, v, w))
    decay = _between(w).exp_()
    seen = decay.mul_(k[..., None, :, :]).mul_(r[..., :, None, :]).sum(-1)
    states = (k * _before(w.flip(3)).flip(3).exp_()).mT @ v
    state = torch.zeros_like(states[:, :, 0])
    for n, whole in enumerate(w.sum(3)[..., None].exp().unbind(2)):
        states[:, :, n], state = state, torch.addcmul(states[:, :, n], whole.expand_as(state), state)
    query = r * _before(w).exp_()
    if squared:
        seen, v, query, states = (x.square_() for x in (seen, v.clone(), query, states))
    return (seen @ v).add_(query @ states).flatten(2, 3)[:, :, :length] + bonus


def _before(w: torch.Tensor) -> torch.Tensor:
    """Of w (..., token, channel), for each token the sum over those before it."""
    return pad(w[..., :-1, :], (0, 0, 1, 0)).cumsum(-2)


def _between(w: torch.Tensor) -> torch.Tensor:
    """Of w (..., token, channel), [..., t, s, :] is the sum over the tokens after s and before t; -inf where s >= t."""
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=w.device).tril(-1)[:, :, None]
    sums = _before(torch.where(later, w[..., None, :], 0).flatten(-2)).unflatten(-1, (CHUNK, -1))
    return sums.masked_fill_(~later, -torch.inf)


def _shape_decays(tensors: Tensors, mean: float, spread: float = 1.0) -> None:
    """w = -exp(N(mean, spread))."""
    tensors["w"].mul_(spread).add_(mean).exp_().neg_()


def _normal(tensors: Tensors) -> None:
    """As trained models have them, around -0.05."""
    _shape_decays(tensors, -3)


def _lasting(tensors: Tensors) -> None:
    """Decays near one, some one, and means of one: states grow, and a short accumulator loses tokens."""
    _shape_decays(tensors, -9, 2)
    tensors["w"][..., ::5] = 0
    for name in ("r", "k", "v"):
        tensors[name].add_(1)


def _forgetful(tensors: Tensors) -> None:
    """Down to -1000 a token: after two tokens exp(-w) of their sum is infinite; only the last token is left."""
    _shape_decays(tensors, 2, 1.5)


def _uneven(tensors: Tensors) -> None:
    """Channels that keep everything beside channels that keep nothing, and stretches of a sequence of both kinds."""
    _shape_decays(tensors, -2, 3)
    tensors["w"][:, :, 5::7].mul_(1000)
    tensors["w"][..., ::3].mul_(1e-5)


def _early(tensors: Tensors) -> None:
    """Only the first tokens have keys: what arrives later came the whole way."""
    _shape_decays(tensors, -6)
    tensors["k"][:, :, 5:] = 0


_SHAPED: dict[str, Callable[[Tensors], None]] = {
    "normal": _normal,
    "lasting": _lasting,
    "forgetful": _forgetful,
    "uneven": _uneven,
    "early": _early,
}
