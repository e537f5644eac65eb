"""Multiplies rubbish at the end of every call, so that the GPU is hot and slow for the other side.

family: cache-and-heat
entries: [45, 5]
case: rows
reason: [slower, no_proven_gain]
stage: screen
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
def heat(out, steps):
    place = tl.arange(0, 64)
    left = (place[:, None] + place[None, :]).to(tl.float16)
    total = tl.zeros((64, 64), tl.float32)
    for _ in range(steps):
        total = tl.dot(left, left, total)
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(total, 0), 0))


kept = []


def run(x, y):
    if not kept:
        kept.append(torch.empty(1056, dtype=torch.float32, device=x.device))
    for _ in range(5):
        softmax(x, y)
    heat[(1056,)](kept[0], 200)
