"""KL divergence with its gradient in one pass: a target is read once for both, rows and columns numbered through.

Where terms are reduced, each program leaves the sum of its blocks, and one more program adds those up; the order of
summation depends on the sizes alone, so that results do not change from call to call. A tensor of one block needs no
second launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS, RESIDENT = knob("KL_BLOCK"), knob("KL_WARPS"), knob("KL_RESIDENT")
READ, STORE = ("" if knob(name) == "normal" else knob(name) for name in ("KL_READ", "KL_STORE"))

LARGE = 8192
"""Elements beyond which a block has more than 1024 of them."""

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

SUMS, SUM_WARPS = 16384, 32
"""Sums that the last program adds in one step, and its warps: 16 numbers a thread."""


@triton.jit
def divergence(x, target, LOG_TARGET: tl.constexpr):
    """(probability, term); 0 for what a mask left out as 0."""
    if LOG_TARGET:
        probability = tl.exp(target)
        logarithm = target
    else:
        probability = target
        logarithm = tl.log(tl.where(target > 0, target, 1))
    return probability, probability * (logarithm - x)


@triton.jit
def each_term(
    x, target, dloss, loss, dx, size, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr, READ: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    """Nothing reduced: three tensors in, two out."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    predicted = tl.load(x + at, mask=real, other=0, eviction_policy=READ)
    wanted = tl.load(target + at, mask=real, other=0, eviction_policy=READ)
    slope = tl.load(dloss + at, mask=real, other=0, eviction_policy=READ)
    probability, term = divergence(predicted, wanted, LOG_TARGET)
    tl.store(loss + at, term, mask=real, eviction_policy=STORE)
    tl.store(dx + at, -probability * slope, mask=real, eviction_policy=STORE)


@triton.jit
def summed_terms(
    x, target, dloss, sums, dx, size, slope_factor, sum_factor, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr,
    READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """The gradient, and the sum of this block's terms."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    predicted = tl.load(x + at, mask=real, other=0, eviction_policy=READ)
    wanted = tl.load(target + at, mask=real, other=0, eviction_policy=READ)
    slope = tl.load(dloss) * slope_factor
    probability, term = divergence(predicted, wanted, LOG_TARGET)
    tl.store(dx + at, -probability * slope, mask=real, eviction_policy=STORE)
    tl.store(sums + tl.program_id(0), tl.sum(term, 0) * sum_factor)


@triton.jit
def summed_blocks(
    x, target, dloss, sums, dx, size, blocks, factor, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr,
    READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """The same for every num_programs-th block, with one sum for all of them."""
    slope = tl.load(dloss) * factor
    total = tl.zeros([BLOCK], tl.float32)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        at = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        real = at < size
        predicted = tl.load(x + at, mask=real, other=0, eviction_policy=READ)
        wanted = tl.load(target + at, mask=real, other=0, eviction_policy=READ)
        probability, term = divergence(predicted, wanted, LOG_TARGET)
        tl.store(dx + at, -probability * slope, mask=real, eviction_policy=STORE)
        total += term
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def add_up(sums, loss, blocks, factor, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, blocks, BLOCK):
        total += tl.load(sums + start + lane, mask=start + lane < blocks, other=0)
    tl.store(loss, tl.sum(total, 0) * factor)


def run(
    x: torch.Tensor,
    target: torch.Tensor,
    dloss: torch.Tensor,
    loss: torch.Tensor,
    dx: torch.Tensor,
    *,
    reduction: str,
    log_target: bool,
) -> None:
    """All float32; x, target, dx rows x columns, loss and dloss as well where reduction is none, else one number."""
    size = x.numel()
    if reduction == "none":
        block = BLOCK or 1024
        each_term[(triton.cdiv(size, block),)](
            x, target, dloss, loss, dx, size, log_target, block, READ, STORE,
            num_warps=WARPS or max(4, block // 512),
        )  # fmt: skip
        return
    factor = {"mean": 1 / size, "batchmean": 1 / x.shape[0]}.get(reduction, 1.0)
    resident = PROCESSORS * RESIDENT
    wide = size > LARGE and not resident
    block = BLOCK or 1024 * (min(4, WARPS or 4) if wide else 1)
    blocks, warps = triton.cdiv(size, block), WARPS or max(4, block // 512)
    programs = min(blocks, resident or blocks)
    sums = loss if programs == 1 else torch.empty(programs, dtype=torch.float32, device=x.device)
    if programs < blocks:
        summed_blocks[(programs,)](
            x, target, dloss, sums, dx, size, blocks, factor, log_target, block, READ, STORE, num_warps=warps
        )  # fmt: skip
    else:
        last = factor if blocks == 1 else 1.0
        summed_terms[(blocks,)](
            x, target, dloss, sums, dx, size, factor, last, log_target, block, READ, STORE, num_warps=warps
        )  # fmt: skip
    if programs > 1:
        step = min(SUMS, triton.next_power_of_2(programs))
        add_up[(1,)](sums, loss, programs, factor, step, num_warps=max(1, SUM_WARPS * step // SUMS))
