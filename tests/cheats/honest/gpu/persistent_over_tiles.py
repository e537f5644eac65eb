"""Stays on the device and takes tiles of several rows in turn, with software pipelining.

family: assumed-structure
entries: [31]
case: rows
interpreted: {}
"""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def walk(x, y, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr):
    column = tl.arange(0, WIDTH)
    tiles = tl.cdiv(rows, ROWS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        at = row[:, None].to(tl.int64) * columns + column[None, :]
        value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.where(row < rows, tl.max(value, 1), 0.0)
        powers = tl.exp(value - top[:, None])
        total = tl.where(row < rows, tl.sum(powers, 1), 1.0)
        tl.store(y + at, (powers / total[:, None]).to(tl.bfloat16), mask=inside)


@functools.cache
def programs(device):
    if device.type != "cuda":
        return 8
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


def run(x, y):
    rows, columns = x.shape
    height = 2 if columns > 64 else 16
    grid = (min(triton.cdiv(rows, height), programs(x.device)),)
    walk[grid](x, y, rows, columns, triton.next_power_of_2(columns), height, STAGES=2, num_warps=8)
