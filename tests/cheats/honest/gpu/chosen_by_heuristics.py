"""Has heuristics set what follows from the width.

family: tuning-while-timed
entries: [9]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.heuristics(
    {
        "WIDTH": lambda given: triton.next_power_of_2(given["columns"]),
        "IS_FULL": lambda given: given["columns"] == triton.next_power_of_2(given["columns"]),
    }
)
@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr, IS_FULL: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    if IS_FULL:
        value = tl.load(x + at).to(tl.float32)
    else:
        value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    result = (powers / tl.sum(powers, 0)).to(tl.bfloat16)
    if IS_FULL:
        tl.store(y + at, result)
    else:
        tl.store(y + at, result, mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, num_warps=8)
