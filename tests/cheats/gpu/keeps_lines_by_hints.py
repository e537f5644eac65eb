"""Asks by hints for lines to be kept in the L2 for the next call; its own work is the start's, hints only the last pass.

family: cache-and-heat
entries: [5]
case: rows
reason: [slower, no_proven_gain, not_per_call]
stage: confirm
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


@triton.jit
def plain(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    for _ in range(4):
        plain[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
