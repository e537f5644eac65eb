"""out[r] = base[r] + W[adapter[r]] x[r], and base[r] alone where adapter[r] is -1; without accumulation base is 0.

The expanding half of LoRA: x has the adapter's rank, a row of W for each output. Everything is bfloat16.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

NONE = -1
"""The adapter of a request that has none."""

CANCELLATION = 2.0**-6
"""Of bfloat16's roundings: 1024 of float32, where a sum has some hundred terms."""

SKIPPED = 8
"""Under most distributions one request in so many has no adapter."""


def _sizes(requests: int, rank: int, width: int, adapters: int, accumulate: bool = True) -> Problem:
    sizes = {"requests": requests, "rank": rank, "width": width, "adapters": adapters}
    return sizes | {"accumulate": accumulate}


class Contract(contract.Contract):
    """x is requests x rank, weights adapters x width x rank, adapter_of int32, base and out requests x width.

    base is handed over in every call; where `accumulate` is false it means nothing.
    """

    problems: Mapping[str, Problem] = {
        "large_256x64x14336": _sizes(256, 64, 14336, 256),
        "thin_256x16x28672": _sizes(256, 16, 28672, 300, accumulate=False),
        "shared_512x64x14336": _sizes(512, 64, 14336, 16),
        "ragged_77x40x5003": _sizes(77, 40, 5003, 31),
        "small_4x128x64": _sizes(4, 128, 64, 3),
        "small_write_4x128x64": _sizes(4, 128, 64, 3, accumulate=False),
        "odd_5x20x77": _sizes(5, 20, 77, 6),
        "crowded_41x16x48": _sizes(41, 16, 48, 3),
        "rank_one_9x1x33": _sizes(9, 1, 33, 4, accumulate=False),
        "lone_1x8x130": _sizes(1, 8, 130, 1),
        "single_1x1x1": _sizes(1, 1, 1, 1, accumulate=False),
    }
    distributions = ("normal", "grouped", "skewed", "one", "none", "stale", "offset")
    domains: Mapping[str, tuple[float, float]] = {
        "x": (-1e4, 1e4),
        "weights": (-1e4, 1e4),
        "base": (-1e4, 1e4),
    }

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        requests, rank, width = problem["requests"], problem["rank"], problem["width"]
        shapes = {
            "x": (requests, rank),
            "weights": (problem["adapters"], width, rank),
            "base": (requests, width),
        }
        drawn = {name: _normal(shape, generator) for name, shape in shapes.items()}
        adapter_of = _ASSIGNED.get(distribution, _mixed)(problem, generator)
        if distribution == "stale":
            _spoil_unused(problem, drawn, adapter_of)
        if distribution == "offset":
            drawn["x"].add_(2)
            drawn["weights"].add_(2)
        x, weights, base = drawn.values()
        return {"x": x, "weights": weights, "adapter_of": adapter_of.int(), "base": base}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"out": Spec((problem["requests"], problem["width"]), torch.bfloat16)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("requests", "adapters"), ("rank",), ("width",))

    def attributes(self, problem: Problem) -> dict[str, bool | int | float | str]:
        return {"accumulate": problem["accumulate"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"out": _expanded(problem, inputs, lambda t: t.double())}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Products and sums in float32, the base added before the one rounding."""
        return {"out": _expanded(problem, inputs, lambda t: t.float()).bfloat16()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Each result's own size, and of the terms that cancel in it the share that sums in float32 leave."""
        terms = _expanded(problem, inputs, lambda t: t.double().abs())
        return {"out": terms.mul_(CANCELLATION).add_(reference["out"].abs()).clamp_min_(2.0**-100)}

    def work(self, problem: Problem) -> Work:
        """As under `normal`: a multiply-add for each weight of each served request; weights in use read once."""
        requests, rank, width = problem["requests"], problem["rank"], problem["width"]
        served = _served(requests)
        used = min(problem["adapters"], served)
        outputs = requests * width
        read = used * width * rank + served * rank + (outputs if problem["accumulate"] else 0)
        return Work(flops=2 * served * width * rank, bytes=2 * (read + outputs) + 4 * requests)


def _served(requests: int) -> int:
    return requests - requests // SKIPPED


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=generator.device)


def _expanded(
    problem: Problem, inputs: Tensors, widened: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Each request's weights gathered, times its x; what a request without adapter gathers is thrown away."""
    x, base, adapter_of = widened(inputs["x"]), widened(inputs["base"]), inputs["adapter_of"].long()
    weights = widened(inputs["weights"][adapter_of.clamp_min(0)])
    product = torch.bmm(weights, x[:, :, None])[:, :, 0]
    product.masked_fill_((adapter_of == NONE)[:, None], 0)
    return product.add_(base) if problem["accumulate"] else product


def _mixed(problem: Problem, generator: torch.Generator) -> torch.Tensor:
    """As many adapters as there are, or as requests have one, each for equally many requests, in random order."""
    requests, adapters, place = problem["requests"], problem["adapters"], generator.device
    named = torch.randperm(adapters, generator=generator, device=place)
    served = named[torch.arange(_served(requests), device=place) % adapters]
    unserved = torch.full((requests - len(served),), NONE, device=place)
    return torch.cat([served, unserved])[torch.randperm(requests, generator=generator, device=place)]


def _grouped(problem: Problem, generator: torch.Generator) -> torch.Tensor:
    """Requests of one adapter side by side."""
    return _mixed(problem, generator).sort().values


def _skewed(problem: Problem, generator: torch.Generator) -> torch.Tensor:
    """Few adapters have most of the requests, and how many have none is anybody's guess."""
    requests, adapters, place = problem["requests"], problem["adapters"], generator.device
    drawn, without = torch.rand(2, requests, generator=generator, device=place)
    share = torch.rand(1, generator=generator, device=place)
    return (adapters * drawn**3).long().clamp_max_(adapters - 1).masked_fill_(without < share, NONE)


def _one(problem: Problem, generator: torch.Generator) -> torch.Tensor:
    """The last adapter for everybody."""
    return torch.full((problem["requests"],), problem["adapters"] - 1, device=generator.device)


def _none(problem: Problem, generator: torch.Generator) -> torch.Tensor:
    return torch.full((problem["requests"],), NONE, device=generator.device)


def _spoil_unused(problem: Problem, drawn: Tensors, adapter_of: torch.Tensor) -> None:
    """What no result depends on is NaN: adapters that nobody has, x of who has none, a base that is not added."""
    unused = torch.ones(problem["adapters"] + 1, dtype=torch.bool, device=adapter_of.device)
    unused[adapter_of + 1] = False
    drawn["weights"][unused[1:]] = float("nan")
    drawn["x"][adapter_of == NONE] = float("nan")
    if not problem["accumulate"]:
        drawn["base"].fill_(float("nan"))


_ASSIGNED: dict[str, Callable[[Problem, torch.Generator], torch.Tensor]] = {
    "grouped": _grouped,
    "skewed": _skewed,
    "one": _one,
    "none": _none,
}
