"""Leaves a kernel on a stream of its own that waits for later calls and never ends.

family: work-after-done
entries: [1, 45]
case: rows
reason: [hung, left_work_running, raised, crashed]
"""

import torch
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


@triton.jit
def serve(flag, out):
    while tl.load(flag, volatile=True) == 0:
        tl.store(out, tl.load(out, volatile=True) + 1)


kept = []


def run(x, y):
    if not kept:
        kept.extend(torch.zeros(2, dtype=torch.int32, device=x.device).split(1))
        kept.append(torch.cuda.Stream())
        kept[2].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(kept[2]):
            serve[(1,)](kept[0], kept[1])
    softmax(x, y)
