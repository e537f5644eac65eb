"""LoRA expansion in three forms, by how many adapters there are for the requests.

Fewer adapters than requests: programs of an adapter serve all who have it, sixteen at a time, in products of matrices.
As many adapters: requests of one adapter are ranked as they come, and those ranked 0, 16, 32, ... lead: their programs
serve the sixteen that begin there, programs of all others end at once. If rows of weights are short as well, each
request is served for itself, all of a program's weights under way at once. Requests without an adapter are a kind of
their own, whose x and weights are zero and never loaded.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

TILE, SPAN, WARPS, STAGES, FORM = (knob(f"LORA_{n}") for n in ("TILE", "SPAN", "WARPS", "STAGES", "FORM"))

GROUP = tl.constexpr(16)
"""Requests in a product; the fewest that tensor cores take."""

LEAST_RANK = 16
"""Ranks below it are padded with zeros, for the same reason."""

MAX_CHUNK = 512
"""Requests looked through at once for those of a group, at the most."""

SHORT = 32
"""Rank up to which a row of weights, two sectors, is summed up without tensor cores."""

NOBODY = tl.constexpr(-2)
"""The adapter of requests that do not exist; -1 is that of requests without one."""

WEIGHTS, WIDEST = 8192, 256
"""Weights of a tile, and its outputs at the most: their sums, for sixteen requests, are in registers."""

OWN_WEIGHTS, OWN_WARPS = 4096, 2
"""The same of a request by itself, and the warps of its programs."""


@triton.jit
def rows_ranked(adapter_of, adapter, rank, requests, CHUNK: tl.constexpr):
    """The requests of this adapter ranked rank, rank + 1, ... rank + GROUP - 1; 0 where there are no more."""
    wanted = rank + tl.arange(0, GROUP)
    row = tl.zeros([GROUP], tl.int32)
    seen = 0
    for start in range(0, requests, CHUNK):
        lane = start + tl.arange(0, CHUNK)
        same = tl.load(adapter_of + lane, mask=lane < requests, other=NOBODY) == adapter
        ranks = tl.where(same, seen + tl.cumsum(same.to(tl.int32), 0) - 1, -1)
        row += tl.sum(tl.where(ranks[None, :] == wanted[:, None], lane[None, :], 0), 1)
        seen += tl.sum(same.to(tl.int32), 0)
    return row


@triton.jit
def serve(
    x, weights, base, out, row, served, width, loaded, first, last, RANK: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, ACCUMULATE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Outputs of these rows in the tiles from first to last; x and weights are zero where nothing is loaded."""
    k = tl.arange(0, K)[None, :]
    held = tl.where(loaded > 0, RANK, 0)
    inputs = tl.load(x + row[:, None] * RANK + k, mask=served[:, None] & (k < held), other=0)
    for tile in tl.range(first, last, num_stages=STAGES):
        column = tile * TILE + tl.arange(0, TILE)
        used = (column < loaded)[:, None] & (k < RANK)
        weight = tl.load(weights + column[:, None] * RANK + k, mask=used, other=0)
        result = tl.dot(inputs, tl.trans(weight))
        at = row.to(tl.int64)[:, None] * width + column[None, :]
        real = served[:, None] & (column < width)[None, :]
        if ACCUMULATE:
            result += tl.load(base + at, mask=real, other=0).to(tl.float32)
        tl.store(out + at, result.to(tl.bfloat16), mask=real)


@triton.jit
def expand_span(
    x, weights, adapter_of, base, out, requests, width, spans, RANK: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, SPAN: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr, ACCUMULATE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """SPAN tiles of TILE outputs, for the group that one request leads, if it leads one."""
    request = tl.program_id(0) // spans
    adapter = tl.load(adapter_of + request)
    lane = tl.arange(0, LANES)
    same = tl.load(adapter_of + lane, mask=lane < requests, other=NOBODY) == adapter
    rank = tl.sum((same & (lane < request)).to(tl.int32), 0)
    if rank % GROUP == 0:
        count = tl.sum((same & (lane >= request)).to(tl.int32), 0)
        row = request + tl.zeros([GROUP], tl.int32)
        if count > 1:
            row = rows_ranked(adapter_of, adapter, rank, requests, CHUNK)
        first = tl.program_id(0) % spans * SPAN
        last = tl.minimum(first + SPAN, tl.cdiv(width, TILE))
        mine = weights + tl.maximum(adapter, 0).to(tl.int64) * width * RANK
        serve(
            x, mine, base, out, row, tl.arange(0, GROUP) < count, width, tl.where(adapter >= 0, width, 0), first,
            last, RANK, K, TILE, ACCUMULATE, STAGES,
        )  # fmt: skip


@triton.jit
def expand_adapter(
    x, weights, adapter_of, base, out, requests, width, spans, RANK: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, SPAN: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr, ACCUMULATE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The same tiles for all groups of one adapter, whose weights are in the cache after the first; -1 has most."""
    adapter = tl.program_id(0) // spans - 1
    lane = tl.arange(0, LANES)
    same = tl.load(adapter_of + lane, mask=lane < requests, other=NOBODY) == adapter
    count = tl.sum(same.to(tl.int32), 0)
    first = tl.program_id(0) % spans * SPAN
    last = tl.minimum(first + SPAN, tl.cdiv(width, TILE))
    mine = weights + tl.maximum(adapter, 0).to(tl.int64) * width * RANK
    for rank in range(0, count, GROUP):
        row = rows_ranked(adapter_of, adapter, rank, requests, CHUNK)
        serve(
            x, mine, base, out, row, rank + tl.arange(0, GROUP) < count, width, tl.where(adapter >= 0, width, 0),
            first, last, RANK, K, TILE, ACCUMULATE, STAGES,
        )  # fmt: skip


@triton.jit
def expand_each(
    x, weights, adapter_of, base, out, width, parts, RANK: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):  # fmt: skip
    """TILE outputs of one request."""
    request = (tl.program_id(0) // parts).to(tl.int64)
    adapter = tl.load(adapter_of + request).to(tl.int64)
    column = tl.program_id(0) % parts * TILE + tl.arange(0, TILE)
    k = tl.arange(0, K)
    real = column < width
    used = (column < tl.where(adapter >= 0, width, 0))[:, None] & (k < RANK)[None, :]
    inputs = tl.load(x + request * RANK + k, mask=k < tl.where(adapter >= 0, RANK, 0), other=0).to(tl.float32)
    weight = tl.load(weights + (adapter * width + column)[:, None] * RANK + k[None, :], mask=used, other=0)
    result = tl.sum(weight.to(tl.float32) * inputs[None, :], 1)
    if ACCUMULATE:
        result += tl.load(base + request * width + column, mask=real, other=0).to(tl.float32)
    tl.store(out + request * width + column, result.to(tl.bfloat16), mask=real)


def form_of(requests: int, adapters: int, rank: int) -> str:
    if adapters < requests:
        return "adapter"
    return "each" if rank <= SHORT else "led"


def run(
    x: torch.Tensor,
    weights: torch.Tensor,
    adapter_of: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool,
) -> None:
    """x bfloat16 requests x rank, weights adapters x width x rank, adapter_of int32; base, out requests x width."""
    (requests, rank), adapters, width = x.shape, weights.shape[0], out.shape[1]
    k = max(LEAST_RANK, triton.next_power_of_2(rank))
    form = form_of(requests, adapters, rank) if FORM == "shape" else FORM
    if form == "each":
        tile = TILE or max(16, min(OWN_WEIGHTS // k, triton.next_power_of_2(width)))
        parts = triton.cdiv(width, tile)
        expand_each[(parts * requests,)](
            x, weights, adapter_of, base, out, width, parts, rank, k, tile, accumulate, num_warps=WARPS or OWN_WARPS
        )  # fmt: skip
        return
    tile = TILE or max(16, min(WIDEST, WEIGHTS // k, triton.next_power_of_2(width)))
    span = SPAN or (2 if form == "adapter" else 4)
    spans, lanes = triton.cdiv(width, tile * span), triton.next_power_of_2(requests)
    kernel, kinds = (expand_adapter, adapters + 1) if form == "adapter" else (expand_span, requests)
    kernel[(spans * kinds,)](
        x, weights, adapter_of, base, out, requests, width, spans, rank, k, tile, span, lanes,
        min(lanes, MAX_CHUNK), accumulate, STAGES or 3, num_warps=WARPS or 4,
    )  # fmt: skip
