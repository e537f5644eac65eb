"""Captures its launch on the first arrays of each shape, and replays that for ever.

family: stale-replay
case: rows
entries: [7]
reason: policy
says: captures launches
unread:
  reason: [output_not_written, raised, crashed, wrong_result]
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
    if x.shape not in graphs:
        softmax(x, y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            softmax(x, y)
        graphs[x.shape] = graph
    graphs[x.shape].replay()
