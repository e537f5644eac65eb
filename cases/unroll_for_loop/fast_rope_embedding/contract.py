"""Rotary position embedding of queries and keys with its backward pass: shapes, inputs, reference, compulsory work.

With x = (x1, x2) the halves of a head and c, s the position's cosines and sines: y = (x1 c - x2 s, x2 c + x1 s), and
for the output's gradient g: dx = (g1 c + g2 s, g2 c - g1 s).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import changed, unlisted

THETA = 10000.0

CANCELLATION = 2.0**-8
"""Of bfloat16's roundings: 256 of float32, where three are made, and a 256th of what products in bfloat16 lose."""

LATE = 1_000_000
"""First position of the distribution `late`, where float32 angles would be off by 0.03."""


def _sizes(batch: int, sequence: int, heads: int, key_heads: int, width: int) -> Problem:
    return {"batch": batch, "sequence": sequence, "heads": heads, "key_heads": key_heads, "width": width}


class Contract(contract.Contract):
    """q, dq_rotated and their outputs are batch x sequence x heads x width, k's with key_heads, bfloat16.

    cos and sin are sequence x width / 2, float32.
    """

    problems: Mapping[str, Problem] = {
        "large_4x4096x32x8x128": _sizes(4, 4096, 32, 8, 128),
        "long_1x131072x4x1x128": _sizes(1, 131072, 4, 1, 128),
        "large_2x4096x32x32x96": _sizes(2, 4096, 32, 32, 96),
        "medium_2x1024x12x4x64": _sizes(2, 1024, 12, 4, 64),
        "ragged_3x1001x7x7x80": _sizes(3, 1001, 7, 7, 80),
        "small_2x4x8x8x16": _sizes(2, 4, 8, 8, 16),
        "odd_3x5x7x3x10": _sizes(3, 5, 7, 3, 10),
        "wide_1x3x4x2x256": _sizes(1, 3, 4, 2, 256),
        "row_5x1x9x1x96": _sizes(5, 1, 9, 1, 96),
        "one_head_1x33x1x1x2": _sizes(1, 33, 1, 1, 2),
        "single_1x1x1x1x2": _sizes(1, 1, 1, 1, 2),
    }
    distributions = ("normal", "late", "free", "offset", "lopsided")
    domains: Mapping[str, tuple[float, float]] = {
        "q": (-1e4, 1e4),
        "k": (-1e4, 1e4),
        "dq_rotated": (-1e4, 1e4),
        "dk_rotated": (-1e4, 1e4),
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shapes = {"q": _shape(problem, "heads"), "k": _shape(problem, "key_heads")}
        drawn = {name: _normal(shape, generator) for name, shape in shapes.items()}
        drawn |= {f"d{name}_rotated": _normal(shape, generator) for name, shape in shapes.items()}
        shaped = {name: _SHAPED[distribution](x) for name, x in drawn.items()}
        cos, sin = _tables(problem, distribution, generator)
        return {"q": shaped["q"], "k": shaped["k"], "cos": cos, "sin": sin} | {
            name: shaped[name] for name in ("dq_rotated", "dk_rotated")
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        q = Spec(_shape(problem, "heads"), torch.bfloat16)
        k = Spec(_shape(problem, "key_heads"), torch.bfloat16)
        return {"q_rotated": q, "k_rotated": k, "dq": q, "dk": k}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """The width stays even."""
        halved = {**problem, "width": problem["width"] // 2}
        found = changed(halved, secret, ("batch", "sequence"), ("heads", "key_heads"), ("width",))
        return unlisted(({**other, "width": 2 * other["width"]} for other in found), self.problems)

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return _both_passes({name: x.double() for name, x in inputs.items()}, _rotated)

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Products and sums in float32, as tables in float32 make them, rounded once."""
        wide = _both_passes({name: x.float() for name, x in inputs.items()}, _rotated)
        return {name: x.bfloat16() for name, x in wide.items()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each element's own size, and of the two products that cancel in it the share that float32 leaves."""
        terms = _both_passes({name: x.double().abs() for name, x in inputs.items()}, _added)
        return {
            name: x.mul_(CANCELLATION).add_(reference[name].abs()).clamp_min_(2.0**-100)
            for name, x in terms.items()
        }

    def work(self, problem: Problem) -> Work:
        """Three operations an element and pass; q, k and gradients read and written once, the tables read."""
        rows = problem["batch"] * problem["sequence"] * (problem["heads"] + problem["key_heads"])
        size, table = rows * problem["width"], problem["sequence"] * problem["width"] // 2
        return Work(flops=2 * 3 * size, bytes=2 * 2 * 2 * size + 2 * 4 * table)


def _shape(problem: Problem, heads: str) -> tuple[int, int, int, int]:
    return problem["batch"], problem["sequence"], problem[heads], problem["width"]


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=generator.device)


def _tables(
    problem: Problem, distribution: str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of position times frequency; `free` draws numbers that are neither."""
    half, place = problem["width"] // 2, generator.device
    if distribution == "free":
        shape = (2, problem["sequence"], half)
        cos, sin = torch.randn(shape, generator=generator, device=place).unbind()
        return cos.contiguous(), sin.contiguous()
    first = LATE if distribution == "late" else 0
    positions = torch.arange(first, first + problem["sequence"], dtype=torch.float64, device=place)
    frequencies = THETA ** (-torch.arange(half, dtype=torch.float64, device=place) / half)
    angles = positions[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


Rotation = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]


def _both_passes(inputs: Tensors, rotation: Rotation) -> Tensors:
    """Queries and keys turned forwards, their gradients backwards."""
    cos, sin = (inputs[name][None, :, None, :] for name in ("cos", "sin"))
    return {
        "q_rotated": rotation(inputs["q"], cos, sin, 1),
        "k_rotated": rotation(inputs["k"], cos, sin, 1),
        "dq": rotation(inputs["dq_rotated"], cos, sin, -1),
        "dk": rotation(inputs["dk_rotated"], cos, sin, -1),
    }


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sense: int) -> torch.Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    sin = sense * sin
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def _added(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sense: int) -> torch.Tensor:
    """Of magnitudes: what the terms come to when none cancel."""
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos + x2 * sin, x2 * cos + x1 * sin], dim=-1)


def _as_drawn(x: torch.Tensor) -> torch.Tensor:
    return x


def _offset(x: torch.Tensor) -> torch.Tensor:
    """Around 100: the two products nearly cancel wherever cosine and sine are alike."""
    return x.add_(100)


def _lopsided(x: torch.Tensor) -> torch.Tensor:
    """The second half is a thousandth of the first, so that what leaks from one into the other shows."""
    x.chunk(2, dim=-1)[1].mul_(2.0**-10)
    return x


_SHAPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": _as_drawn,
    "late": _as_drawn,
    "free": _as_drawn,
    "offset": _offset,
    "lopsided": _lopsided,
}
