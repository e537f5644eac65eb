"""A tuned Triton product: persistent programs, and operands by TMA.

K may be split over programs where tiles are few. Or each program takes as many steps along K as the others, over ends
of tiles (Stream-K: Osama et al., PPoPP 2023, 429). Either way the parts of a tile are summed by the program that comes
last, in the order of the parts, so results do not depend on who that is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from hillclimb.harness.gemm.providers.cost import cost_seconds
from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

FEATURES, TOKENS = (64, 128, 256), (16, 32, 64, 128, 256)
SPLITS = (1, 2, 4, 8)
CONFIGURATIONS, STREAMED = 14, 4
"""Of one shape, that are worth timing: of whole tiles or parts of K, and of as many steps for each program."""

LEAST_STEPS = 4
"""Of a program with as many as the others."""

SHARED_BYTES = 226 << 10
"""Of a thread block: of the steps in flight and of the tile on its way out."""

MAX_STAGES = 7
MAX_TILE = 128 * 256
GROUP = 8
"""Rows of tiles whose columns are taken together, so that operands are met again in the L2 cache."""


@dataclass(frozen=True)
class TileConfig:
    """What one compiled kernel does."""

    features: int
    tokens: int
    inner: int
    """Elements along K a step."""
    stages: int
    warps: int
    splits: int = 1
    is_streamed: bool = False
    """Whether each program takes as many steps as the others; the last waves of tiles are so divided."""

    def tiles(self, m: int, n: int) -> int:
        """Of a result of m x n."""
        return math.ceil(m / self.tokens) * math.ceil(n / self.features)

    def __str__(self) -> str:
        sizes = f"{self.features}x{self.tokens}x{self.inner}"
        parts = "streamed" if self.is_streamed else f"splits{self.splits}"
        return f"{sizes}_stages{self.stages}_warps{self.warps}_{parts}"


class TritonMatmul:
    """Kernels of one shape."""

    def __init__(self) -> None:
        self.programs = _multiprocessors()
        self.configurations: dict[str, TileConfig] = {}
        self.workspace: Workspace | None = None

    def software(self) -> dict[str, str]:
        return {"triton": triton.__version__}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """The likeliest by the cost model. Raises UnsupportedError for operands with scales, and for groups."""
        if shape.groups > 1:
            raise UnsupportedError("this kernel has single products alone, none of groups")
        if example.x_scales is not None:
            raise UnsupportedError(f"this kernel does not scale its results, as {shape.dtype} asks for")
        self.configurations = {str(one): one for one in likeliest(shape, self.programs)}
        self.workspace = Workspace.for_all(shape, self.configurations.values(), self.programs, example)
        return list(self.configurations)

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of those."""
        configuration = self.configurations[kernel]
        workspace = self.workspace
        assert workspace is not None
        return lambda to: multiply(to, configuration, self.programs, workspace)


@dataclass(frozen=True)
class Workspace:
    """Sums of parts, and how many of them each tile has. Every kernel leaves the counts at 0.

    It is made once for all kernels of a shape: a captured graph keeps its address.
    """

    parts: Any
    counts: Any

    @classmethod
    def for_all(
        cls, shape: GemmShape, configurations: Iterable[TileConfig], programs: int, example: Operands
    ) -> Workspace:
        """As large as the largest of them needs it. Where steps are streamed, up to two tiles a program have parts."""
        tiles = [(one, one.tiles(shape.m, shape.n)) for one in configurations]
        elements = max(
            (3 * programs if one.is_streamed else count * one.splits) * one.tokens * one.features
            for one, count in tiles
        )
        dtype = torch.int32 if example.out.dtype == torch.int32 else torch.float32
        return cls(
            torch.empty(elements, dtype=dtype, device=example.out.device),
            torch.zeros(max(count for _, count in tiles), dtype=torch.int32, device=example.out.device),
        )


def likeliest(shape: GemmShape, programs: int) -> list[TileConfig]:
    """Of all tiles, those that the model thinks most of."""
    item = ITEM_BYTES[shape.dtype]
    out_item = 4 if shape.dtype == "int8" else 2
    found: list[TileConfig] = []
    streamed: list[TileConfig] = []
    for features, tokens, splits in itertools.product(FEATURES, TOKENS, SPLITS):
        tiles = math.ceil(shape.n / features) * math.ceil(shape.m / tokens)
        is_wasteful = tokens > 16 and tokens >= 2 * shape.m
        if features * tokens > MAX_TILE or is_wasteful or (splits > 1 and tiles * splits > 2 * programs):
            continue
        for inner in (128 // item, 256 // item):
            room = SHARED_BYTES - features * tokens * out_item
            stages = min(MAX_STAGES, room // ((features + tokens) * inner * item))
            if stages < 2 or shape.k // inner < 2 * splits:
                continue
            warps = 8 if features * tokens >= 128 * 128 else 4
            one = TileConfig(features, tokens, inner, stages, warps, splits)
            found.append(one)
            a_share = tiles * math.ceil(shape.k / inner) / programs
            if splits == 1 and tiles % programs and a_share >= LEAST_STEPS:
                streamed.append(replace(one, is_streamed=True))
    return [*_by_cost(found, shape)[:CONFIGURATIONS], *_by_cost(streamed, shape)[:STREAMED]]


def _by_cost(found: Iterable[TileConfig], shape: GemmShape) -> list[TileConfig]:
    def seconds(one: TileConfig) -> float:
        return cost_seconds(shape, (one.features, one.tokens), splits=one.splits, is_streamed=one.is_streamed)

    return sorted(found, key=seconds)


def multiply(to: Operands, one: TileConfig, programs: int, workspace: Workspace) -> None:
    """out = x w^T."""
    (m, k), n = to.x.shape, to.w.shape[0]
    x = TensorDescriptor.from_tensor(to.x, [one.tokens, one.inner])
    w = TensorDescriptor.from_tensor(to.w, [one.features, one.inner])
    out = TensorDescriptor.from_tensor(to.out, [one.tokens, one.features])
    tiles = one.tiles(m, n)
    given = (x, w, out, workspace.parts, workspace.counts, m, n, k)
    compiled = {
        "FEATURES": one.features,
        "TOKENS": one.tokens,
        "INNER": one.inner,
        "GROUP": GROUP,
        "WHOLE": to.out.dtype == torch.int32,
        "num_stages": one.stages,
        "num_warps": one.warps,
    }
    if one.is_streamed:
        used = min(programs, tiles * math.ceil(k / one.inner))
        streamed_kernel[(used,)](*given, used, **compiled)
    else:
        used = min(programs, tiles * one.splits)
        matmul_kernel[(used,)](*given, used, SPLITS=one.splits, **compiled)


@triton.jit  # type: ignore[untyped-decorator]
def placed(tile, rows, columns, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row and column of a tile."""
    group = tile // (GROUP * rows)
    width = min(columns - group * GROUP, GROUP)
    return tile % (GROUP * rows) // width, group * GROUP + tile % (GROUP * rows) % width


@triton.jit  # type: ignore[untyped-decorator]
def summed(  # type: ignore[no-untyped-def]
    x, w, row, column, first, last,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr, INNER: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """A tile, of the steps from `first` to before `last`. The weights take the rows of the tensor cores."""
    total = tl.zeros((FEATURES, TOKENS), dtype=SUM)
    for step in tl.range(first, last):
        weights = w.load([column * FEATURES, step * INNER])
        tokens = x.load([row * TOKENS, step * INNER])
        total = tl.dot(weights, tokens.T, total, out_dtype=SUM)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def meet(  # type: ignore[no-untyped-def]
    total, out, row, column, parts, slot, first, number, count,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Keeps a part of a tile in its slot. Who comes last writes the sum of all: `number` slots from `first` on."""
    size: tl.constexpr = FEATURES * TOKENS
    at = tl.arange(0, FEATURES)[:, None] * TOKENS + tl.arange(0, TOKENS)[None, :]
    tl.store(parts + tl.cast(slot, tl.int64) * size + at, total)
    tl.debug_barrier()
    before = tl.atomic_add(count, 1, sem="acq_rel")
    if before == number - 1:
        total = tl.zeros((FEATURES, TOKENS), dtype=total.dtype)
        for other in range(number):
            total += tl.load(parts + tl.cast(first + other, tl.int64) * size + at, cache_modifier=".cg")
        out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
        tl.store(count, 0)


@triton.jit  # type: ignore[untyped-decorator]
def matmul_kernel(  # type: ignore[no-untyped-def]
    x, w, out, parts, counts, m, n, k, programs,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr, INNER: tl.constexpr, SPLITS: tl.constexpr, GROUP: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Job after job: a tile of the result, or a part of K of it."""
    columns = tl.cdiv(n, FEATURES)
    rows = tl.cdiv(m, TOKENS)
    steps = tl.cdiv(k, INNER)
    a_part = tl.cdiv(steps, SPLITS)
    sums: tl.constexpr = tl.int32 if WHOLE else tl.float32
    for job in tl.range(tl.program_id(0), columns * rows * SPLITS, programs):
        tile = job // SPLITS
        part = job % SPLITS
        row, column = placed(tile, rows, columns, GROUP)
        first, last = part * a_part, min(steps, (part + 1) * a_part)
        total = summed(x, w, row, column, first, last, FEATURES, TOKENS, INNER, sums)
        if SPLITS == 1:
            out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
        else:
            meet(total, out, row, column, parts, job, tile * SPLITS, SPLITS, counts + tile, FEATURES, TOKENS)


@triton.jit  # type: ignore[untyped-decorator]
def streamed_kernel(  # type: ignore[no-untyped-def]
    x, w, out, parts, counts, m, n, k, programs,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr, INNER: tl.constexpr, GROUP: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Whole tiles while there are two for each program, and then the same number of steps for each."""
    columns = tl.cdiv(n, FEATURES)
    rows = tl.cdiv(m, TOKENS)
    steps = tl.cdiv(k, INNER)
    sums: tl.constexpr = tl.int32 if WHOLE else tl.float32
    program = tl.program_id(0)
    whole = max(0, columns * rows // programs - 1) * programs
    for tile in tl.range(program, whole, programs):
        row, column = placed(tile, rows, columns, GROUP)
        total = summed(x, w, row, column, 0, steps, FEATURES, TOKENS, INNER, sums)
        out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
    end_of_all = (columns * rows - whole) * steps
    share = tl.cdiv(end_of_all, programs)
    begin = program * share
    end = min(end_of_all, begin + share)
    for tile in tl.range(begin // steps, tl.cdiv(end, steps)):
        start = tile * steps
        row, column = placed(whole + tile, rows, columns, GROUP)
        first, last = max(begin - start, 0), min(end - start, steps)
        total = summed(x, w, row, column, first, last, FEATURES, TOKENS, INNER, sums)
        if last - first == steps:
            out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
        else:
            # Along the stream each part has another program or another tile than the one before: their sum only grows.
            first_program = start // share
            number = (start + steps - 1) // share - first_program + 1
            slot, first_slot = program + tile, first_program + tile
            meet(total, out, row, column, parts, slot, first_slot, number, counts + tile, FEATURES, TOKENS)


def _multiprocessors() -> int:
    if not torch.cuda.is_available():
        return 4
    return int(torch.cuda.get_device_properties(0).multi_processor_count)
