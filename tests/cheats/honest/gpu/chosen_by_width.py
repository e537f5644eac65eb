"""Takes another kernel for narrow rows than for wide ones, as the width alone says.

family: told-from-timing
entries: [10, 30]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.jit
def wide(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


@triton.jit
def narrow(x, y, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=-1e30).to(tl.float32)
    powers = tl.where(inside, tl.exp(value - tl.max(value, 1)[:, None]), 0.0)
    total = tl.where(row < rows, tl.sum(powers, 1), 1.0)
    tl.store(y + at, (powers / total[:, None]).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    match width:
        case small if small <= 128:
            narrow[(triton.cdiv(rows, 8),)](x, y, rows, columns, width, ROWS=8, num_warps=1)
        case _:
            warps = 4 if width < 2048 else 8
            wide[(rows,)](x, y, columns, width, num_warps=warps)
