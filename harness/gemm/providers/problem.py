"""A shape's operands on the GPU, and how a kernel is checked and timed on them.

A call is timed inside a CUDA graph of many calls, each with other operands than the one before, so that they come from
memory and not from the L2 cache. What is checked is that graph's own results, on outputs that were poisoned.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

from hillclimb.harness.gemm.providers.operand_sets import operand_sets, unevenly_spread
from hillclimb.harness.gemm.providers.provider import Launch, Operands
from hillclimb.harness.gemm.shape import Dtype, GemmShape

TOLERANCE: dict[Dtype, float] = {
    "bf16": 2.0**-8,
    "f16": 2.0**-11,
    "fp8": 2.0**-5,
    "int8": 0.0,
    "scaled_fp8": 2.0**-5,
    "scaled_int8": 2.0**-8,
}
"""Times an element of the reference, and times the mean size of all: twice what rounding the result costs.

Tensor cores of Hopper sum fp8 products in fewer bits than float32 has: at k = 14336 cuBLAS was off by 2^-6 of both.
"""

CACHE_MULTIPLE = 16
"""Operands of all sets, in sizes of the L2 cache. With 4 a kernel that keeps a part of them in the cache by hints gains
by what nobody has outside a bench: 1.2 % at 96 to 1024 tokens (docs/evidence/gemm_cache_and_pdl_h200.json)."""

COMPARED_SETS = 8
"""Whose results are compared, at the most."""

GRAPH_SECONDS = 600e-6
"""Of one graph, at the least: beside it the clock's resolution and the graph's start are small."""

MAX_CALLS = 512
SPARE_BYTES = 1 << 30
"""Of a GPU's memory, that may stay with this process."""

ROWS_AT_ONCE = 1 << 26
"""Elements of a reference that are computed at once."""


@dataclass(frozen=True)
class Graph:
    """Calls that were captured."""

    calls: Any
    results: Sequence[Any]
    """Of the last calls, one for each set of operands. They are kept, so that no two of them share memory."""


@contextmanager
def _capture(graph: Any) -> Iterator[None]:
    """What the current stream is given. torch.cuda.graph also gives all free memory back, which takes far longer."""
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


class ShapeProblem:
    """One shape: its sets of operands and what they give, in float64 rounded to float32."""

    def __init__(self, shape: GemmShape, sets: int = 0, seed: int = 0) -> None:
        self.shape = shape
        make: Any = torch.cuda.Stream
        self.stream = make()
        self._graphs: dict[tuple[str, int, int], Graph] = {}
        self._enough: dict[str, int] = {}
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self.sets = list(operand_sets(shape, sets or self._cold_sets(), generator))
        self.checked_sets = list(self.sets)
        """All that are timed; of groups also one whose tokens are spread unevenly."""
        compared = {*range(0, len(self.sets), math.ceil(len(self.sets) / COMPARED_SETS))}
        if shape.groups > 1:
            compared.add(len(self.sets))
            self.checked_sets.append(unevenly_spread(self.sets[0], generator))
        self.references = {at: _reference(self.checked_sets[at]) for at in sorted(compared)}
        torch.cuda.empty_cache()  # what it took to make them is free for the processes of other providers

    def check(self, kernel: str, launch: Launch) -> str:
        """What is wrong with its results; empty where nothing is."""
        graph = self._graph(kernel, launch, self.checked_sets, len(self.checked_sets))
        for result in graph.results:
            result.fill_(math.nan if result.is_floating_point() else -(2**31))
        torch.cuda.synchronize()
        graph.calls.replay()
        torch.cuda.synchronize()
        told = ""
        for at, reference in self.references.items():
            if told := self._difference(self.checked_sets[at], graph.results[at], reference):
                break
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > SPARE_BYTES:
            torch.cuda.empty_cache()  # other providers' processes may need it, and captures cannot take it back
        return told

    def seconds(self, kernel: str, launch: Launch, calls: int = 0) -> float:
        """Of one call: the graph is replayed twice, and the second time counts."""
        calls = calls or self._calls(kernel, launch)
        graph = self._graph(kernel, launch, self.sets, calls).calls
        make: Any = torch.cuda.Event
        start, end = make(enable_timing=True), make(enable_timing=True)
        with torch.cuda.stream(self.stream):
            graph.replay()
            start.record(self.stream)
            graph.replay()
            end.record(self.stream)
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / calls

    def _calls(self, kernel: str, launch: Launch) -> int:
        """As many as take long enough; every set as often as the others."""
        if kernel not in self._enough:
            sets = len(self.sets)
            once = self.seconds(kernel, launch, sets) * sets
            times = min(math.ceil(GRAPH_SECONDS / max(once, 1e-9)), MAX_CALLS // sets)
            self._enough[kernel] = sets * max(1, times)
        return self._enough[kernel]

    def _graph(self, kernel: str, launch: Launch, sets: Sequence[Operands], calls: int) -> Graph:
        """Of so many calls, with one of these sets after another."""
        key = (kernel, len(sets), calls)
        if key not in self._graphs:
            with torch.cuda.stream(self.stream):
                launch(sets[0])  # what a first call sets up must not be captured
            self.stream.synchronize()
            graph, results = torch.cuda.CUDAGraph(), deque[Any](maxlen=len(sets))
            with torch.cuda.stream(self.stream), _capture(graph):
                for to in islice(cycle(sets), calls):
                    own = launch(to)
                    results.append(to.out if own is None else own)
            self._graphs[key] = Graph(graph, results)
        return self._graphs[key]

    def forget(self, kernel: str) -> None:
        """Its graphs."""
        for key in [key for key in self._graphs if key[0] == kernel]:
            del self._graphs[key]

    def _difference(self, one: Operands, result: Any, reference: Any) -> str:
        if result.dtype != one.out.dtype or result.shape != one.out.shape:
            return f"the result is {result.dtype} {tuple(result.shape)}"
        error = (result.float() - reference).abs()
        wrong = ~(error <= TOLERANCE[self.shape.dtype] * (reference.abs() + _mean_size(one, reference)))
        if not bool(wrong.any()):
            return ""
        at = int(wrong.flatten().int().argmax())
        row, column = divmod(at, self.shape.n)
        return (
            f"{int(wrong.sum())} of {wrong.numel()} results are wrong, the first at [{row}, {column}]: "
            f"{float(result.flatten()[at])} instead of {float(reference.flatten()[at])}"
        )

    def _cold_sets(self) -> int:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        return max(2, math.ceil(CACHE_MULTIPLE * cache / self.shape.bytes))


def _mean_size(one: Operands, reference: Any) -> Any:
    """Of all elements; where there are scales, of all sums, times the scales of each element."""
    if one.x_scales is None:
        return reference.abs().mean()
    w_scales = one.w_scales
    if one.group_rows:
        w_scales = w_scales.repeat_interleave(torch.tensor(one.group_rows, device=w_scales.device), dim=0)
    scales = one.x_scales[:, None] * w_scales
    return (reference / scales).abs().mean() * scales


def _reference(one: Operands) -> Any:
    """In float64 by rows, kept in float32. Whole numbers below 2^24 are exact in it."""
    if one.group_rows:
        return torch.cat([_reference(of_group) for of_group in one.each_group()])
    w = one.w.double().t()
    rows = max(1, ROWS_AT_ONCE // one.w.shape[0])
    if one.w_scales is not None:
        w = w * one.w_scales.double()
    parts = [part.double() @ w for part in one.x.split(rows)]
    if one.x_scales is not None:
        parts = [
            part * of[:, None] for part, of in zip(parts, one.x_scales.double().split(rows), strict=True)
        ]
    return torch.cat([part.float() for part in parts])
