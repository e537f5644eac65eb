"""s = a*s + x_t over time, real or complex, and its gradients: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import isqrt, pi

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

FEW = 4096
"""Numbers that a CPU works through sooner than a GPU launches a kernel for them."""

SMALLEST = 2.0**-100
"""What is smaller is held to this, not to its own size: float32 ends."""


def _sizes(length: int, batch: int, dim: int, parts: int = 1) -> Problem:
    return {"length": length, "batch": batch, "dim": dim, "parts": parts}


class Contract(contract.Contract):
    """y_t = a * y_{t-1} + x_t from y_{-1} = s, every channel by itself; s is the state before the first step.

    Inputs are s (batch, dim), x (length, batch, dim), a (dim) and dy as y; outputs y as x, and the gradients of
    sum(y * dy): ds, dx, da. All float32; with parts = 2 each has a last dimension (real, imaginary) as
    torch.view_as_real gives it, and gradients follow torch's convention (conjugates).
    """

    problems: Mapping[str, Problem] = {
        "train_4096x8x2048": _sizes(4096, 8, 2048),
        "complex_2048x8x2048": _sizes(2048, 8, 2048, 2),
        "long_65536x1x512": _sizes(65536, 1, 512),
        "long_complex_32768x1x320": _sizes(32768, 1, 320, 2),
        "short_96x64x2048": _sizes(96, 64, 2048),
        "ragged_1000x3x333": _sizes(1000, 3, 333),
        "odd_517x2x67": _sizes(517, 2, 67),
        "odd_complex_259x3x67": _sizes(259, 3, 67, 2),
        "ragged_complex_19x3x5": _sizes(19, 3, 5, 2),
        "small_5x2x3": _sizes(5, 2, 3),
        "small_complex_5x2x3": _sizes(5, 2, 3, 2),
        "step_1x2x23": _sizes(1, 2, 23),
        "channel_9x1x1": _sizes(9, 1, 1),
        "single_complex_1x1x1": _sizes(1, 1, 1, 2),
    }
    distributions = ("mixed", "slow", "offset", "edges")
    domains: Mapping[str, tuple[float, float]] = {"s": (-1e4, 1e4), "x": (-1e4, 1e4), "dy": (-1e4, 1e4)}
    unmixed = "a complex decay of two halves may be longer than one"

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        state, steps = _shapes(problem)
        s, x, dy = (
            torch.randn(shape, generator=generator, device=generator.device)
            for shape in (state, steps, steps)
        )
        if distribution == "offset":
            x.add_(2), dy.add_(1)
        size = _DECAYS[distribution](torch.rand(problem["dim"], generator=generator, device=generator.device))
        turn = torch.rand(problem["dim"], generator=generator, device=generator.device)
        return {"s": s, "x": x, "a": _turned(size, turn, problem["parts"], distribution), "dy": dy}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        state, steps = _shapes(problem)
        shapes = {"y": steps, "ds": state, "dx": steps, "da": state[1:]}
        return {name: Spec(shape, torch.float32) for name, shape in shapes.items()}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("length", "batch", "dim"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        s, x, a, dy = _numbers(problem, inputs, torch.float64)
        return _parts(problem, _gradients(s, x, a, dy, _scanned))

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """float32 (complex64) in torch, step by step and in blocks: of each element the worse.

        Of one order alone, a small problem's largest error may be small by luck.
        """
        s, x, a, dy = _numbers(problem, inputs, torch.float32)
        one, other = (_parts(problem, _gradients(s, x, a, dy, both)) for both in (_stepped, _scanned))
        exact = self.reference(problem, inputs)
        return {name: torch.where((one[name] - right).abs() > (other[name] - right).abs(), one[name], other[name])
                for name, right in exact.items()}  # fmt: skip

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """How far an element is off if every rounding on the way is by all that it rounds: the root of the squares.

        1.5 epsilons of it are six standard deviations of a right kernel's error or more, in every element. So the
        budget does not hang on how well the torch computation happens to do where elements are few.
        """
        s, x, a, dy = _numbers(problem, inputs, torch.float64)
        y, dx = (_complex(problem, reference[name]) for name in ("y", "dx"))
        zero, none = torch.zeros_like(s), torch.zeros_like(s.abs())
        before, after = torch.cat((s[None], y[:-1])), torch.cat((dx[1:], zero[None]))
        y_lost, dx_lost = _lost(y, s, x, a), _lost(dx.flip(0), zero, dy.flip(0), a).flip(0)
        y_square = _scan(none, y_lost, _square(a))
        dx_square = _scan(none, dx_lost.flip(0), _square(a)).flip(0)
        y_counts = _scan(zero, after.flip(0), a.conj().resolve_conj()).flip(0)
        da_square = (y_lost * _square(y_counts) + dx_lost * _square(_scan(zero, before, a))).sum((0, 1))
        da_square += _lost_in_pairs((dx * before.conj()).flatten(0, 1))
        ds_square = _square(a) * (dx_square[0] + _square(dx[0]))
        squares = {"y": y_square, "ds": ds_square, "dx": dx_square, "da": da_square}
        scales = {name: square.sqrt().clamp_min_(SMALLEST) for name, square in squares.items()}
        return {name: scale.expand_as(reference[name]) if problem["parts"] == 1 else
                scale[..., None].expand_as(reference[name]) for name, scale in scales.items()}  # fmt: skip

    def work(self, problem: Problem) -> Work:
        """A multiply-add a step for y, dx and da each; x and dy read once, y and dx written once."""
        parts = problem["parts"]
        steps = problem["length"] * problem["batch"] * problem["dim"]
        small = 2 * problem["batch"] * problem["dim"] + 2 * problem["dim"]
        return Work(flops=(6 if parts == 1 else 24) * steps, bytes=4 * parts * (4 * steps + small))


def _shapes(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a state and of all steps."""
    state = (problem["batch"], problem["dim"]) + ((2,) if problem["parts"] == 2 else ())
    return state, (problem["length"], *state)


def _complex(problem: Problem, value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(value) if problem["parts"] == 2 else value


def _numbers(problem: Problem, inputs: Tensors, dtype: torch.dtype) -> list[torch.Tensor]:
    return [_complex(problem, inputs[name].to(dtype)) for name in ("s", "x", "a", "dy")]


def _parts(problem: Problem, outputs: Tensors) -> Tensors:
    if problem["parts"] == 1:
        return outputs
    return {name: torch.view_as_real(value.resolve_conj()) for name, value in outputs.items()}


def _square(value: torch.Tensor) -> torch.Tensor:
    """Of the absolute value."""
    return (value * value.conj()).real if value.is_complex() else value * value


def _lost(y: torch.Tensor, s: torch.Tensor, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Squares of what a step rounds, a product and a sum: each of the size of y or, in other orders, of its terms."""
    return 2 * (_square(y) + _scan(_square(s), _square(x), _square(a)))


def _lost_in_pairs(terms: torch.Tensor) -> torch.Tensor:
    """Squares of what a sum over the first dimension rounds: the terms, pairs of them, pairs of those, and so on."""
    lost = _square(terms).sum(0)
    while len(terms) > 1:
        left, right = terms.tensor_split(2)
        terms = left
        terms[: len(right)] += right
        lost += _square(terms).sum(0)
    return lost


Both = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _gradients(s: torch.Tensor, x: torch.Tensor, a: torch.Tensor, dy: torch.Tensor, both: Both) -> Tensors:
    """dx_t = dy_t + conj(a) dx_{t+1}, the same recurrence backwards; da sums dx_t * conj(y_{t-1})."""
    y, dx = both(s, x, a, dy)
    da = (dx[0] * s.conj()).sum(0) + (dx[1:] * y[:-1].conj()).sum((0, 1))
    return {"y": y, "ds": a.conj() * dx[0], "dx": dx, "da": da}


def _scanned(
    s: torch.Tensor, x: torch.Tensor, a: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """y and dx in blocks."""
    return _scan(s, x, a), _scan(torch.zeros_like(s), dy.flip(0), a.conj().resolve_conj()).flip(0)


def _stepped(
    s: torch.Tensor, x: torch.Tensor, a: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """y and dx step by step, both in one loop: a small step takes as long as one of twice its size."""
    first, given = torch.stack((s, torch.zeros_like(s))), torch.stack((x, dy.flip(0)), 1)
    y, dx = _steps(first, given, torch.stack((a, a.conj()))[:, None]).unbind(1)
    return y.contiguous(), dx.flip(0)


def _steps(s: torch.Tensor, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Step by step, every product and every sum rounded; complex numbers by their real and imaginary parts.

    Where a step has few numbers a GPU would only wait for launches; a CPU rounds them to the same bits.
    """
    y = torch.cat((s[None], x))
    if x.is_complex():
        y, a = torch.view_as_real(y).movedim(-1, 1).contiguous(), _crosswise(a.expand_as(s))
    place = torch.device("cpu") if y[0].numel() <= FEW else x.device
    y, a = y.to(place), a.to(place)
    products = a * y[0]
    straight, crossed = products.flatten(0, 1)[:2], products.flatten(0, 1)[3:5]
    for before, now in pairwise(y.unbind()):
        torch.mul(a, before, out=products)
        now.add_(straight.add_(crossed) if x.is_complex() else products)
    y = y[1:].to(x.device)
    return torch.view_as_complex(y.movedim(1, -1).contiguous()) if x.is_complex() else y


def _crosswise(a: torch.Tensor) -> torch.Tensor:
    """Factors (3, 2, ...) of real and imaginary parts, for all products of a step in one multiplication.

    Of the six that come out, the first two and the fourth and fifth are the terms of the real and the imaginary part.
    """
    none = torch.zeros_like(a.real)
    return torch.stack((a.real, a.real, none, -a.imag, a.imag, none)).unflatten(0, (3, 2))


def _scan(s: torch.Tensor, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """The same in blocks of about sqrt(length): all blocks step by step together, then what each is handed."""
    length, width = len(x), isqrt(len(x) - 1) + 1
    count = -(-length // width)
    y = x.new_zeros((count * width, *x.shape[1:]))
    y[:length] = x
    blocks = y.view(count, width, *x.shape[1:])
    powers = torch.empty((width, *a.shape), dtype=a.dtype, device=a.device)
    powers[0] = a
    for step in range(1, width):
        blocks[:, step] += a * blocks[:, step - 1]
        powers[step] = powers[step - 1] * a
    for block in blocks:
        block.add_(powers[:, None] * s)
        s = block[-1]
    return y[:length]


def _turned(size: torch.Tensor, turn: torch.Tensor, parts: int, distribution: str) -> torch.Tensor:
    """Decays of this size with a random sign or phase; positive where the point is that sums grow."""
    if distribution == "offset":
        turn = turn * 1e-3
    if parts == 2:
        return torch.view_as_real(torch.polar(size, 2 * pi * turn))
    return size if distribution == "offset" else torch.where(turn < 0.5, size, -size)


def _slow(uniform: torch.Tensor) -> torch.Tensor:
    """1 - 2^-4 to 1 - 2^-12: what a step loses in the last bit stays for thousands of steps."""
    return 1 - torch.exp2(-4 - 8 * uniform)


def _edges(uniform: torch.Tensor) -> torch.Tensor:
    """0, a denormal's neighbour, a half and 1: logarithms, quotients and powers of the decay go wrong here."""
    corners = torch.tensor([0.0, 1e-30, 0.5, 1.0], device=uniform.device)
    return corners[(uniform * 4).long().clamp_max(3)]


_DECAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mixed": lambda uniform: uniform,
    "slow": _slow,
    "offset": _slow,
    "edges": _edges,
}
