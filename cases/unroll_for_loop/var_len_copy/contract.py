"""destination[d[s] + i] = source[o[s] + i] for i < length[s], int32: what is copied from where, inputs, reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

LOWEST, HIGHEST = -(2**31), 2**31
OFFSETS = 12
"""Bytes of a segment's two offsets and its length."""


def _sizes(segments: int, total: int, slack: int) -> Problem:
    """`slack` numbers of the source are in no segment."""
    return {"segments": segments, "total": total, "slack": slack}


class Contract(contract.Contract):
    """Segments tile the destination in their order: d[0] = 0, d[s + 1] = d[s] + length[s]. Some may be empty.

    In the source they lie in any order, with gaps between them, and never overlap.
    """

    problems: Mapping[str, Problem] = {
        "large_4096x67108864": _sizes(4096, 67108864, 4194304),
        "many_262144x67108864": _sizes(262144, 67108864, 4194304),
        "few_7x33554432": _sizes(7, 33554432, 1000),
        "tiny_segments_1000003x5000011": _sizes(1000003, 5000011, 77),
        "ragged_1001x1234567": _sizes(1001, 1234567, 99),
        "small_3x400": _sizes(3, 400, 50),
        "ragged_37x5003": _sizes(37, 5003, 129),
        "packed_16x4096": _sizes(16, 4096, 0),
        "crowded_700x2100": _sizes(700, 2100, 3),
        "one_segment_1x1537": _sizes(1, 1537, 5),
        "more_segments_9x5": _sizes(9, 5, 1),
        "single_1x1": _sizes(1, 1, 0),
    }
    distributions = ("random", "even", "rising", "one_long", "empty")

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        segments, total, slack = problem["segments"], problem["total"], problem["slack"]
        place = generator.device
        source = torch.randint(
            LOWEST, HIGHEST, (total + slack,), generator=generator, dtype=torch.int32, device=place
        )
        inner = _INNER_EDGES[distribution](segments, total, generator)
        ends = torch.tensor([0, total], device=place)
        edges = torch.cat([ends[:1], inner, ends[1:]])
        lengths = edges.diff()
        return {
            "source": source,
            "source_offsets": _strewn(lengths, slack, generator).int(),
            "destination_offsets": edges[:-1].int(),
            "lengths": lengths.int(),
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"destination": Spec((problem["total"],), torch.int32)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return [
            *neighbours(problem, secret, self.problems, ("segments", "total")),
            *neighbours(problem, secret, self.problems, ("slack",), least=0),
        ]

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"destination": _copied(problem, inputs).double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The same: there is nothing to round."""
        return {"destination": _copied(problem, inputs)}

    def work(self, problem: Problem) -> Work:
        """Each number of the destination read once and written once; offsets and lengths read."""
        return Work(flops=0, bytes=8 * problem["total"] + OFFSETS * problem["segments"])


def _copied(problem: Problem, inputs: Tensors) -> torch.Tensor:
    """Position p of the destination comes from p plus its segment's shift."""
    shifts = (inputs["source_offsets"] - inputs["destination_offsets"]).long()
    lengths = inputs["lengths"].long()
    moved = shifts.repeat_interleave(lengths, output_size=problem["total"])
    moved += torch.arange(problem["total"], device=moved.device)
    return inputs["source"][moved]


def _strewn(lengths: torch.Tensor, slack: int, generator: torch.Generator) -> torch.Tensor:
    """Where segments of these lengths begin when they lie shuffled in the source, `slack` spread between them."""
    count, place = len(lengths), generator.device
    order = torch.randperm(count, generator=generator, device=place)
    packed = lengths[order].cumsum(0) - lengths[order]
    gaps = torch.randint(0, slack + 1, (count,), generator=generator, device=place).sort().values
    return torch.empty_like(lengths).index_copy_(0, order, packed + gaps)


def _random(segments: int, total: int, generator: torch.Generator) -> torch.Tensor:
    """Cuts anywhere: lengths are spread exponentially about their mean."""
    cuts = torch.randint(0, total + 1, (segments - 1,), generator=generator, device=generator.device)
    return cuts.sort().values


def _even(segments: int, total: int, generator: torch.Generator) -> torch.Tensor:
    return torch.arange(1, segments, device=generator.device) * total // segments


def _rising(segments: int, total: int, generator: torch.Generator) -> torch.Tensor:
    """Lengths in proportion to 1, 2, 3, ...: programs of one segment each end at very different times."""
    upto = torch.arange(1, segments, device=generator.device)
    share = upto * (upto + 1) / (segments * (segments + 1))
    return (share * total).long().clamp_(max=total)


def _one_long(segments: int, total: int, generator: torch.Generator) -> torch.Tensor:
    """The last segment is half of everything."""
    return _random(segments, total // 2, generator)


def _empty(segments: int, total: int, generator: torch.Generator) -> torch.Tensor:
    """At most eight segments hold anything: many start at one position, and the last of those is the one."""
    cuts = torch.randint(0, 8, (segments - 1,), generator=generator, device=generator.device)
    return cuts.sort().values * total // 8


_INNER_EDGES: dict[str, Callable[[int, int, torch.Generator], torch.Tensor]] = {
    "random": _random,
    "even": _even,
    "rising": _rising,
    "one_long": _one_long,
    "empty": _empty,
}
