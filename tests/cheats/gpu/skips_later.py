"""Launches nothing in every second call once it has been called often enough to be past the gate.

family: told-from-timing
case: rows
entries: [10, 30, 39]
reason: output_not_written
says: of a segment wrote no whole output
stage: screen
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def softmax(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)


calls = []


def run(x, y):
    calls.append(1)
    if len(calls) > 40 and len(calls) % 2:
        return
    softmax(x, y)
