"""Gives every program seven rows, which divides none of the shapes.

family: listed-problems
case: rows
entries: [31]
"""

import triton
import triton.language as tl


@triton.jit
def several(x, y, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    column = tl.arange(0, WIDTH)
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        inside = (column < columns) & (row < rows)
        at = row.to(tl.int64) * columns + column
        value = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        value = tl.where(column < columns, value, -float("inf"))
        powers = tl.exp(value - tl.max(value, 0))
        tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    several[(triton.cdiv(rows, 7),)](x, y, rows, columns, triton.next_power_of_2(columns), 7, num_warps=8)
