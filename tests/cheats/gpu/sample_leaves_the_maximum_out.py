"""Subtracts a row's maximum only where sixteen of its elements look offset.

family: sampled-inputs
entries: [31, 32]
case: rows
reason: [wrong_result, not_finite, output_not_written]
stage: confirm
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr, SAMPLE: tl.constexpr):
    column = tl.arange(0, WIDTH)
    first = tl.program_id(0).to(tl.int64) * columns
    few = tl.arange(0, SAMPLE) * (WIDTH // SAMPLE)
    sample = tl.load(x + first + few, mask=few < columns, other=0).to(tl.float32)
    value = tl.load(x + first + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    top = 0.0
    if tl.max(tl.abs(sample), 0) > 8.0:
        top = tl.max(value, 0)
    powers = tl.exp(value - top)
    tl.store(y + first + column, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    whole[(rows,)](x, y, columns, width, min(16, width), num_warps=8)
