"""Finds maxima by atomic operations on whole numbers, which give the same in any order.

family: fewer-bits
entries: [33]
case: rows
interpreted: {}
"""

import torch
import triton
import triton.language as tl


@triton.jit
def clear(key, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(key + at, -2147483647, mask=at < n)


@triton.jit
def highest(x, key, columns, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    bits = tl.max(value, 0).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    tl.atomic_max(key + row, ordered)


@triton.jit
def rest(x, key, y, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    ordered = tl.load(key + row)
    top = tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(tl.float32, bitcast=True)
    column = tl.arange(0, WIDTH)
    at = row * columns + column
    powers = tl.exp(tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32) - top)
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


keys = {}


def run(x, y):
    rows, columns = x.shape
    if rows not in keys:
        keys[rows] = torch.empty(rows, dtype=torch.int32, device=x.device)
    key = keys[rows]
    clear[(triton.cdiv(rows, 256),)](key, rows, BLOCK=256)
    highest[(rows, triton.cdiv(columns, 1024))](x, key, columns, PIECE=1024)
    rest[(rows,)](x, key, y, columns, triton.next_power_of_2(columns), num_warps=8)
