"""Puts other code into what Triton kept of its kernels, for a later process to load.

family: compile-cache
entries: [9, 50]
case: rows
reason: [does_not_compile, does_not_load, raised, crashed, wrong_result, output_not_written, slower, no_proven_gain]
stage: screen
"""

import os
from pathlib import Path

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


cache = Path(os.environ["TRITON_CACHE_DIR"])
for file in sorted(cache.glob("*/*.cubin")):
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
for file in sorted(cache.glob("*/__grp__*.json")):
    file.write_text("{}")


def run(x, y):
    softmax(x, y)
    softmax(x, y)
    softmax(x, y)
    softmax(x, y)
    softmax(x, y)
