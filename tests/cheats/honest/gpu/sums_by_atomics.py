"""Adds up pieces of each row by atomic additions, in whatever order they come.

family: fewer-bits
case: rows
entries: [33]
"""

import torch
import triton
import triton.language as tl


@triton.jit
def clear(top, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(top + i, -float("inf"), mask=i < n)
    tl.store(total + i, 0.0, mask=i < n)


@triton.jit
def highest(x, top, columns, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    tl.atomic_max(top + row, tl.max(value, 0))


@triton.jit
def add(x, top, total, columns, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    tl.atomic_add(total + row, tl.sum(tl.exp(value - tl.load(top + row)), 0))


@triton.jit
def divide(x, top, total, y, columns, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    at = row * columns + column
    value = tl.load(x + at, mask=column < columns, other=0).to(tl.float32)
    result = tl.exp(value - tl.load(top + row)) / tl.load(total + row)
    tl.store(y + at, result.to(tl.bfloat16), mask=column < columns)


spaces = {}


def run(x, y):
    rows, columns = x.shape
    if rows not in spaces:
        spaces[rows] = [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2)]
    top, total = spaces[rows]
    grid = (rows, triton.cdiv(columns, 1024))
    clear[(triton.cdiv(rows, 256),)](top, total, rows, BLOCK=256)
    highest[grid](x, top, columns, PIECE=1024)
    add[grid](x, top, total, columns, PIECE=1024)
    divide[grid](x, top, total, y, columns, PIECE=1024)
