"""Captures its launch for each pair of addresses, and replays it on whatever stands there now.

family: stale-replay
case: rows_eager
entries: [7]
stage: gate
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


graphs = {}


def run(x, y):
    key = x.data_ptr(), y.data_ptr(), x.shape
    if key not in graphs:
        softmax(x, y)
        torch.cuda.synchronize()
        graphs[key] = graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            softmax(x, y)
    graphs[key].replay()
