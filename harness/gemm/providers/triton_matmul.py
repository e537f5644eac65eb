"""A tuned Triton product: persistent programs, operands by TMA, and K split over programs where tiles are few.

The parts of a split K are summed by the program that comes last, in the order of the parts, so results do not depend on
who that is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
CONFIGURATIONS = 14
"""Of one shape, that are worth timing."""

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

    def tiles(self, m: int, n: int) -> int:
        """Of a result of m x n."""
        return math.ceil(m / self.tokens) * math.ceil(n / self.features)

    def __str__(self) -> str:
        sizes = f"{self.features}x{self.tokens}x{self.inner}"
        return f"{sizes}_stages{self.stages}_warps{self.warps}_splits{self.splits}"


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
        self.workspace = Workspace.for_all(shape, self.configurations.values(), example)
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
    def for_all(cls, shape: GemmShape, configurations: Iterable[TileConfig], example: Operands) -> Workspace:
        """As large as the largest of them needs it."""
        tiles = [(one, one.tiles(shape.m, shape.n)) for one in configurations]
        elements = max(count * one.splits * one.tokens * one.features for one, count in tiles)
        dtype = torch.int32 if example.out.dtype == torch.int32 else torch.float32
        return cls(
            torch.empty(elements, dtype=dtype, device=example.out.device),
            torch.zeros(max(count for _, count in tiles), dtype=torch.int32, device=example.out.device),
        )


def likeliest(shape: GemmShape, programs: int) -> list[TileConfig]:
    """Of all tiles, those that the model thinks most of."""
    item = ITEM_BYTES[shape.dtype]
    out_item = 4 if shape.dtype == "int8" else 2
    found = []
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
            found.append(TileConfig(features, tokens, inner, stages, warps, splits))
    found.sort(key=lambda one: cost_seconds(shape, (one.features, one.tokens), splits=one.splits))
    return found[:CONFIGURATIONS]


def multiply(to: Operands, one: TileConfig, programs: int, workspace: Workspace) -> None:
    """out = x w^T."""
    (m, k), n = to.x.shape, to.w.shape[0]
    x = TensorDescriptor.from_tensor(to.x, [one.tokens, one.inner])
    w = TensorDescriptor.from_tensor(to.w, [one.features, one.inner])
    out = TensorDescriptor.from_tensor(to.out, [one.tokens, one.features])
    tiles = one.tiles(m, n)
    jobs = tiles * one.splits
    matmul_kernel[(min(programs, jobs),)](
        *(x, w, out, workspace.parts, workspace.counts, m, n, k, min(programs, jobs)),
        FEATURES=one.features,
        TOKENS=one.tokens,
        INNER=one.inner,
        SPLITS=one.splits,
        GROUP=GROUP,
        WHOLE=to.out.dtype == torch.int32,
        num_stages=one.stages,
        num_warps=one.warps,
    )


@triton.jit  # type: ignore[untyped-decorator]
def matmul_kernel(  # type: ignore[no-untyped-def]
    x, w, out, parts, counts, m, n, k, programs,
    FEATURES: tl.constexpr, TOKENS: tl.constexpr, INNER: tl.constexpr, SPLITS: tl.constexpr, GROUP: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Job after job: a tile of the result, or a part of K of it. The weights take the rows of the tensor cores."""
    columns = tl.cdiv(n, FEATURES)
    rows = tl.cdiv(m, TOKENS)
    steps = tl.cdiv(k, INNER)
    a_part = tl.cdiv(steps, SPLITS)
    sums: tl.constexpr = tl.int32 if WHOLE else tl.float32
    for job in tl.range(tl.program_id(0), columns * rows * SPLITS, programs):
        tile = job // SPLITS
        part = job % SPLITS
        group = tile // (GROUP * rows)
        width = min(columns - group * GROUP, GROUP)
        column = group * GROUP + tile % (GROUP * rows) % width
        row = tile % (GROUP * rows) // width
        total = tl.zeros((FEATURES, TOKENS), dtype=sums)
        for step in tl.range(part * a_part, min(steps, (part + 1) * a_part)):
            weights = w.load([column * FEATURES, step * INNER])
            tokens = x.load([row * TOKENS, step * INNER])
            total = tl.dot(weights, tokens.T, total, out_dtype=sums)
        if SPLITS == 1:
            out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
        else:
            at = tl.arange(0, FEATURES)[:, None] * TOKENS + tl.arange(0, TOKENS)[None, :]
            mine = parts + tile.to(tl.int64) * (SPLITS * FEATURES * TOKENS)
            tl.store(mine + part * (FEATURES * TOKENS) + at, total)
            tl.debug_barrier()
            before = tl.atomic_add(counts + tile, 1, sem="acq_rel")
            if before == SPLITS - 1:
                total = tl.zeros((FEATURES, TOKENS), dtype=sums)
                for other in range(SPLITS):
                    total += tl.load(mine + other * (FEATURES * TOKENS) + at, cache_modifier=".cg")
                out.store([row * TOKENS, column * FEATURES], total.T.to(out.dtype))
                tl.store(counts + tile, 0)


def _multiprocessors() -> int:
    if not torch.cuda.is_available():
        return 4
    return int(torch.cuda.get_device_properties(0).multi_processor_count)
