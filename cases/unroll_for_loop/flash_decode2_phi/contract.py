"""Merging the blocks of a split attention, heads of any width: out = sum_i w_i o_i, w = softmax(l) over blocks in use.

A sequence of n tokens uses ceil(n / block_seq) blocks; what lies behind them in the buffers means nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

CANCELLATION = 2.0**-6
"""Of float16's roundings: 256 of float32. exp(l - m) is off by l - m of them, and those are at most some 50."""

SMALLEST = 2.0**-14
"""Least normal float16: below it, roundings do not shrink any more."""


def _sizes(batch: int, heads: int, blocks: int, width: int, block_seq: int = 256) -> Problem:
    return {"batch": batch, "heads": heads, "blocks": blocks, "width": width, "block_seq": block_seq}


class Contract(contract.Contract):
    """partial is batch x heads x blocks x width and lse without the width, float32; out without the blocks, float16.

    lengths, int32, are from 1 to blocks * block_seq tokens; block_seq is an attribute of the call.
    """

    problems: Mapping[str, Problem] = {
        "large_256x64x64x80": _sizes(256, 64, 64, 80),
        "shallow_1024x32x16x96": _sizes(1024, 32, 16, 96),
        "long_4x32x4096x80": _sizes(4, 32, 4096, 80),
        "medium_64x32x32x112": _sizes(64, 32, 32, 112),
        "ragged_33x7x129x72": _sizes(33, 7, 129, 72, 48),
        "small_2x4x3x64": _sizes(2, 4, 3, 64, 16),
        "odd_5x3x7x33": _sizes(5, 3, 7, 33, 13),
        "deep_2x1x177x20": _sizes(2, 1, 177, 20, 1),
        "wide_1x2x5x200": _sizes(1, 2, 5, 200, 100),
        "one_block_3x2x1x96": _sizes(3, 2, 1, 96),
        "narrow_3x1x2x1": _sizes(3, 1, 2, 1, 4),
    }
    distributions = ("normal", "full", "brief", "stale", "offset", "sunken", "rising")
    domains: Mapping[str, tuple[float, float]] = {"partial": (-6e4, 6e4), "lse": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        rows, place = (problem["batch"], problem["heads"], problem["blocks"]), generator.device
        lengths = _lengths(problem, distribution, generator)
        partial = torch.randn((*rows, problem["width"]), generator=generator, device=place)
        lse = torch.randn(rows, generator=generator, device=place).mul_(3)
        if distribution == "stale":
            behind = torch.arange(rows[2], device=place) >= _counts(problem, lengths)[:, None, None]
            partial.masked_fill_(behind[..., None], float("nan"))
            lse.masked_fill_(behind, float("inf"))
        return {"partial": partial, "lse": _SHAPED.get(distribution, _as_drawn)(lse), "lengths": lengths}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"out": Spec((problem["batch"], problem["heads"], problem["width"]), torch.float16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(
            problem, secret, self.problems, ("batch", "heads"), ("blocks",), ("width",), ("block_seq",)
        )

    def attributes(self, problem: Problem) -> dict[str, bool | int | float | str]:
        return {"block_seq": problem["block_seq"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        partial, weights = _usable(problem, inputs, torch.float64)
        return {"out": torch.einsum("bhnd,bhn->bhd", partial, weights)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """torch's softmax and a weighted sum in float32, rounded at the end."""
        partial, weights = _usable(problem, inputs, torch.float32)
        return {"out": partial.mul_(weights[..., None]).sum(dim=2).half()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each result's own size, and of the terms that cancel in it the share that weights in float32 leave."""
        partial, weights = _usable(problem, inputs, torch.float64)
        terms = torch.einsum("bhnd,bhn->bhd", partial.abs_(), weights)
        return {"out": terms.mul_(CANCELLATION).add_(reference["out"].abs()).clamp_min_(SMALLEST)}

    def work(self, problem: Problem) -> Work:
        """A multiply-add an element of the blocks in use under `normal`, which are read once with their lse."""
        rows = problem["batch"] * problem["heads"]
        used = problem["heads"] * int(_spread(problem).sum())
        read = 4 * used * (problem["width"] + 1) + 4 * problem["batch"]
        return Work(flops=2 * used * problem["width"], bytes=read + 2 * rows * problem["width"])


def _spread(problem: Problem) -> torch.Tensor:
    """Numbers of blocks in use, evenly from a few to all: their sum is the same for every draw."""
    turn = torch.arange(1, problem["batch"] + 1)
    return (turn * problem["blocks"]).add_(problem["batch"] - 1).div_(problem["batch"], rounding_mode="floor")


def _lengths(problem: Problem, distribution: str, generator: torch.Generator) -> torch.Tensor:
    """Tokens of each sequence; the last block is full in some and nearly empty in others."""
    batch, place = problem["batch"], generator.device
    counts = _spread(problem).to(place)[torch.randperm(batch, generator=generator, device=place)]
    if distribution in ("full", "brief"):
        counts.fill_(problem["blocks"] if distribution == "full" else 1)
    last = torch.randint(1, problem["block_seq"] + 1, (batch,), generator=generator, device=place)
    return ((counts - 1) * problem["block_seq"] + last).int()


def _counts(problem: Problem, lengths: torch.Tensor) -> torch.Tensor:
    return (lengths.long() + problem["block_seq"] - 1) // problem["block_seq"]


def _usable(problem: Problem, inputs: Tensors, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Partial results, zero behind the blocks in use, and the blocks' weights; new tensors."""
    counts = _counts(problem, inputs["lengths"])
    behind = torch.arange(problem["blocks"], device=counts.device) >= counts[:, None, None]
    partial = inputs["partial"].to(dtype, copy=True).masked_fill_(behind[..., None], 0)
    lse = inputs["lse"].to(dtype, copy=True).masked_fill_(behind, -float("inf"))
    return partial, lse.softmax(dim=2)


def _as_drawn(lse: torch.Tensor) -> torch.Tensor:
    return lse


def _offset(lse: torch.Tensor) -> torch.Tensor:
    """Around 300: exp(300) is infinite in float32."""
    return lse.add_(300)


def _sunken(lse: torch.Tensor) -> torch.Tensor:
    """Around -300: exp(-300) is zero in float32, and a maximum that starts at 0 stays there."""
    return lse.sub_(300)


def _rising(lse: torch.Tensor) -> torch.Tensor:
    """Rises by 40 over the blocks: a running maximum moves all the time, and old sums must be rescaled."""
    return lse.add_(torch.linspace(0, 40, lse.shape[2], device=lse.device))


_SHAPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "offset": _offset,
    "sunken": _sunken,
    "rising": _rising,
}
