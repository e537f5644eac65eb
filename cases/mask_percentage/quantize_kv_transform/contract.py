"""Rows of keys or values to int8, at other places, with one scale a token and head.

scales[destination[t], h] = max |x[t, h, :]| / 127 and q[destination[t], h, :] = x[t, h, :] / scale, to the nearest
whole number; a row of zeros has scale 0 and zeros. With float16 inputs two different quotients are 2e-6 apart,
relatively, or the same: only where a quotient is exactly halfway may its rounding depend on how it was computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

LEVELS = 127
PAGE = 16
"""Tokens that stay together in the distribution `paged`."""

INEXCUSABLE = 2.0**-20
"""What a whole number that is no tie is held to: an error of one is a million times too large."""


def _sizes(tokens: int, heads: int, width: int) -> Problem:
    return {"tokens": tokens, "heads": heads, "width": width}


class Contract(contract.Contract):
    """x is tokens x heads x width; destination is a permutation of the tokens, so that every output is written."""

    problems: Mapping[str, Problem] = {
        "large_131072x12x96": _sizes(131072, 12, 96),
        "large_131072x8x128": _sizes(131072, 8, 128),
        "large_262144x4x80": _sizes(262144, 4, 80),
        "table_32768x12x96": _sizes(32768, 12, 96),
        "small_8192x8x64": _sizes(8192, 8, 64),
        "ragged_10007x3x72": _sizes(10007, 3, 72),
        "wide_37x5x256": _sizes(37, 5, 256),
        "exact_9x12x96": _sizes(9, 12, 96),
        "odd_13x5x33": _sizes(13, 5, 33),
        "uneven_17x3x100": _sizes(17, 3, 100),
        "one_head_65x1x128": _sizes(65, 1, 128),
        "narrow_19x7x1": _sizes(19, 7, 1),
        "single_1x1x1": _sizes(1, 1, 1),
    }
    distributions = ("normal", "paged", "halves", "outliers", "faint")
    domains: Mapping[str, tuple[float, float]] = {"x": (-6e4, 6e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shape = (problem["tokens"], problem["heads"], problem["width"])
        x = torch.randn(shape, generator=generator, dtype=torch.float16, device=generator.device)
        page = PAGE if distribution == "paged" else 1
        destination = _scattered(problem["tokens"], page, generator)
        return {"x": _SHAPED[distribution](x), "destination": destination}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        rows = (problem["tokens"], problem["heads"])
        return {"q": Spec((*rows, problem["width"]), torch.int8), "scales": Spec(rows, torch.float32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("tokens",), ("heads", "width"))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """127 x / max is one rounding from exact in float64, and halves come out as halves: they stay such."""
        quotients, scales = _quantized(inputs["x"].double())
        q = torch.where(_are_halves(quotients), quotients, quotients.round())
        return _moved({"q": q, "scales": scales}, inputs["destination"])

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """In float32, where halves are exact too."""
        quotients, scales = _quantized(inputs["x"].float())
        return _moved({"q": quotients.round_().to(torch.int8), "scales": scales}, inputs["destination"])

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """A half for halves, so that either neighbour will do and no other; nearly nothing for all the rest."""
        quotients, _ = _quantized(inputs["x"].float())
        held = torch.where(_are_halves(quotients), 0.5, INEXCUSABLE).double()
        return {
            **_moved({"q": held}, inputs["destination"]),
            "scales": reference["scales"].clamp_min(2.0**-100),
        }

    def work(self, problem: Problem) -> Work:
        """Magnitude, maximum, product and rounding an element; x and destination read, q and scales written."""
        rows = problem["tokens"] * problem["heads"]
        size = rows * problem["width"]
        return Work(flops=4 * size, bytes=2 * size + 4 * problem["tokens"] + size + 4 * rows)


def _quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quotients before they are rounded, and scales; both in x's dtype."""
    highest = x.abs().amax(dim=2)
    divisors = torch.where(highest > 0, highest, 1)
    return x.mul(LEVELS).div_(divisors[..., None]), highest / LEVELS


def _are_halves(quotients: torch.Tensor) -> torch.Tensor:
    return (quotients - quotients.floor()).eq_(0.5).bool()


def _moved(tensors: Tensors, destination: torch.Tensor) -> Tensors:
    """Every token's row at its destination."""
    at = destination.long()
    return {name: torch.empty_like(value).index_copy_(0, at, value) for name, value in tensors.items()}


def _scattered(tokens: int, page: int, generator: torch.Generator) -> torch.Tensor:
    """A permutation, in which `page` tokens at a time stay together."""
    pages = torch.randperm(-(-tokens // page), generator=generator, device=generator.device)
    places = (pages[:, None] * page + torch.arange(page, device=pages.device)).flatten()
    return places[places < tokens].int()


def _as_drawn(x: torch.Tensor) -> torch.Tensor:
    return x


def _halves(x: torch.Tensor) -> torch.Tensor:
    """Multiples of a half up to 63.5 beside a 127: every second quotient is a tie; either neighbour will do."""
    x.mul_(40).round_().clamp_(-127, 127).div_(2)
    x[..., -1] = 127
    return x


def _outliers(x: torch.Tensor) -> torch.Tensor:
    """One element of each row is a thousand times the others, at the end, where a skipped tail would miss it."""
    x[..., -1] *= -1000
    return x


def _faint(x: torch.Tensor) -> torch.Tensor:
    """Every second token is zero, the others near float16's smallest: scales in float16 would vanish."""
    x.mul_(1e-5)
    x[::2] = 0
    return x


_SHAPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": _as_drawn,
    "paged": _as_drawn,
    "halves": _halves,
    "outliers": _outliers,
    "faint": _faint,
}
