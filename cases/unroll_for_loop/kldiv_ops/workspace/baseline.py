"""KL divergence, one program a row for the forward pass and one for the backward pass, columns in a loop."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("KL_BLOCK") or 256, knob("KL_WARPS") or 4


@triton.jit
def forward_row(
    x, target, loss, columns, REDUCED: tl.constexpr, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr
):
    """Terms of one row, or their sum."""
    first = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        real = column < columns
        predicted = tl.load(x + first + column, mask=real, other=0)
        wanted = tl.load(target + first + column, mask=real, other=0)
        if LOG_TARGET:
            term = tl.exp(wanted) * (wanted - predicted)
        else:
            term = wanted * (tl.log(tl.where(wanted > 0, wanted, 1)) - predicted)
        if REDUCED:
            total += term
        else:
            tl.store(loss + first + column, term, mask=real)
    if REDUCED:
        tl.store(loss + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def sum_rows(sums, loss, rows, factor, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        total += tl.load(sums + row, mask=row < rows, other=0)
    tl.store(loss, tl.sum(total, 0) * factor)


@triton.jit
def backward_row(
    target, dloss, dx, columns, factor, REDUCED: tl.constexpr, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * columns
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        real = column < columns
        wanted = tl.load(target + first + column, mask=real, other=0)
        if LOG_TARGET:
            wanted = tl.exp(wanted)
        slope = tl.load(dloss) * factor if REDUCED else tl.load(dloss + first + column, mask=real, other=0)
        tl.store(dx + first + column, -wanted * slope, mask=real)


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
    rows, columns = x.shape
    reduced = reduction != "none"
    factor = {"mean": 1 / (rows * columns), "batchmean": 1 / rows}.get(reduction, 1.0)
    sums = torch.empty(rows, dtype=torch.float32, device=x.device) if reduced else loss
    forward_row[(rows,)](x, target, sums, columns, reduced, log_target, BLOCK, num_warps=WARPS)
    if reduced:
        sum_rows[(1,)](sums, loss, rows, factor, BLOCK, num_warps=WARPS)
    backward_row[(rows,)](target, dloss, dx, columns, factor, reduced, log_target, BLOCK, num_warps=WARPS)
