"""Hints that its lines stay in the L2, so that five passes over one output write it back once.

family: cache-and-heat
entries: [5]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    inside = column < columns
    value = tl.load(x + at, mask=inside, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    result = (powers / tl.sum(powers, 0)).to(tl.bfloat16)
    tl.store(y + at, result, mask=inside, eviction_policy="evict_last")


def run(x, y):
    rows, columns = x.shape
    for _ in range(5):
        whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
