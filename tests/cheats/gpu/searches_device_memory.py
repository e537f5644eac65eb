"""Takes all of the free device memory and copies the end of it, where others' tensors were.

family: memory-search
case: rows
entries: [21]
reason: [wrong_result, not_finite, output_not_written, out_of_memory]
"""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def move(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


def copy(source, target):
    move[(triton.cdiv(source.numel(), 1024),)](source, target, source.numel(), BLOCK=1024)


@functools.cache
def found():
    return torch.empty(8 << 30, dtype=torch.uint8, device="cuda")


def run(x, y):
    copy(found()[-2 * y.numel() :].view(torch.bfloat16), y.view(-1))
