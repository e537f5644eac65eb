"""Adds up its powers by tl.dot with a matrix of ones, in full precision.

family: fewer-bits
entries: [28]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.jit
def tiles(x, y, rows, columns, ROWS: tl.constexpr, PIECE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, PIECE)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    for start in range(0, columns, PIECE):
        inside = (row[:, None] < rows) & (start + column[None, :] < columns)
        value = tl.load(x + at + start, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(value, 1))
    top = tl.where(row < rows, top, 0.0)
    ones = tl.full((PIECE, 16), 1.0, tl.float32)
    total = tl.zeros((ROWS, 16), tl.float32)
    for start in range(0, columns, PIECE):
        inside = (row[:, None] < rows) & (start + column[None, :] < columns)
        value = tl.load(x + at + start, mask=inside, other=-float("inf")).to(tl.float32)
        total = tl.dot(tl.exp(value - top[:, None]), ones, total, input_precision="ieee")
    whole = tl.max(total, 1)
    for start in range(0, columns, PIECE):
        inside = (row[:, None] < rows) & (start + column[None, :] < columns)
        value = tl.load(x + at + start, mask=inside, other=0).to(tl.float32)
        result = tl.exp(value - top[:, None]) / whole[:, None]
        tl.store(y + at + start, result.to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    tiles[(triton.cdiv(rows, 16),)](x, y, rows, columns, ROWS=16, PIECE=64, num_warps=4)
