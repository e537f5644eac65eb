"""S = sums of the rows of X, in Triton; the place of the real kernel of {{family}}/{{case}}.

The knobs are read once and become constants of the generated code.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("RS_BLOCK"), knob("RS_WARPS")


@triton.jit
def sum_row(x, s, columns, BLOCK: tl.constexpr):
    """One program a row: BLOCK partial sums, each of every BLOCK-th element, which meet once at the end."""
    row = tl.program_id(0)
    first = x + row.to(tl.int64) * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(first + column, mask=column < columns, other=0)
    tl.store(s + row, tl.sum(total))


def run(x: torch.Tensor, s: torch.Tensor) -> None:
    """Sum each row of x, rows x columns and contiguous. Called with the inputs, then the outputs to write."""
    rows, columns = x.shape
    sum_row[(rows,)](x, s, columns, BLOCK, num_warps=WARPS)
