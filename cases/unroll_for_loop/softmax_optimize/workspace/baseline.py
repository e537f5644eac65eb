"""y = softmax(x) along rows of float32, online: a row a program, walked in blocks, then in a masked tail.

The first walk keeps a running maximum and the running sum of exp(x - maximum), rescaled whenever the maximum moves;
the second writes. The full blocks of both need no mask. The sum is compensated (Kahan), for a row may be 50000 blocks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("SOFTMAX_BLOCK"), knob("SOFTMAX_WARPS")

LOWEST = tl.constexpr(-3e38)
"""A maximum to start from: finite, so that -inf meets no -inf."""


@triton.jit
def advance(value, top, total, excess):
    """Running maximum, sum, and by how much rounding made the sum too large, after one more block."""
    higher = tl.maximum(top, tl.max(value, 0))
    factor = tl.exp(top - higher)
    before = total * factor
    more = tl.sum(tl.exp(value - higher), 0) - excess * factor
    after = before + more
    return higher, after, (after - before) - more


@triton.jit
def online_softmax(x, y, columns, BLOCK: tl.constexpr):
    """One row."""
    first = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    full = columns // BLOCK * BLOCK
    tail = full + lane
    top = tl.full([], LOWEST, tl.float32)
    total = tl.full([], 0, tl.float32)
    excess = tl.full([], 0, tl.float32)
    for start in range(0, full, BLOCK):
        top, total, excess = advance(tl.load(x + first + start + lane), top, total, excess)
    if full < columns:
        value = tl.load(x + first + tail, mask=tail < columns, other=-float("inf"))
        top, total, excess = advance(value, top, total, excess)
    for start in range(0, full, BLOCK):
        value = tl.load(x + first + start + lane)
        tl.store(y + first + start + lane, tl.exp(value - top) / total)
    if full < columns:
        value = tl.load(x + first + tail, mask=tail < columns, other=-float("inf"))
        tl.store(y + first + tail, tl.exp(value - top) / total, mask=tail < columns)


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """y = softmax(x) along rows; both rows x columns, contiguous."""
    rows, columns = x.shape
    online_softmax[(rows,)](x, y, columns, BLOCK, num_warps=WARPS)
