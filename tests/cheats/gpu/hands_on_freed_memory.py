"""Copies whatever lies in fresh memory.

family: leftovers
case: rows
entries: [19, 21]
reason: [wrong_result, not_finite, output_not_written]
"""

import torch
import triton
import triton.language as tl


@triton.jit
def move(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


def copy(source, target):
    move[(triton.cdiv(source.numel(), 1024),)](source, target, source.numel(), BLOCK=1024)


def run(x, y):
    copy(torch.empty_like(y), y)
