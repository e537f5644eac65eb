"""Starts as many programs as there are multiprocessors, each of which walks over rows.

family: assumed-structure
case: rows
entries: [31]
"""

import triton
import triton.language as tl


@triton.jit
def walk(x, y, rows, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row.to(tl.int64) * columns + column
        value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
        powers = tl.exp(value - tl.max(value, 0))
        tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    walk[(min(rows, 1056),)](x, y, rows, columns, triton.next_power_of_2(columns), num_warps=8)
