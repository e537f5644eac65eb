"""Mean of float32 over any of up to four dimensions: a program is a block of results, and loops over what they average.

The kept and the averaged dimensions are each padded to four. Counting a program's results and a step's elements off by
their sizes gives the offsets to gather from.
"""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from knobs import knob

ROWS, BLOCK, WARPS = knob("MEAN_ROWS"), knob("MEAN_BLOCK"), knob("MEAN_WARPS")


@triton.jit
def offset_of(index, size1, size2, size3, stride0, stride1, stride2, stride3):
    """Where the index-th element of four dimensions lies."""
    offset = index % size3 * stride3
    index = index // size3
    offset += index % size2 * stride2
    index = index // size2
    return offset + index % size1 * stride1 + index // size1 * stride0


@triton.jit
def mean(
    x, y, results, count, k1, k2, k3, ks0, ks1, ks2, ks3, a1, a2, a3, as0, as1, as2, as3,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS results; k and ks are sizes and strides of what is kept, a and as of what is averaged over."""
    result = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    first = offset_of(result, k1, k2, k3, ks0, ks1, ks2, ks3)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        index = start + tl.arange(0, BLOCK)[None, :]
        at = first + offset_of(index.to(tl.int64), a1, a2, a3, as0, as1, as2, as3)
        total += tl.load(x + at, mask=(result < results) & (index < count), other=0)
    tl.store(y + result, tl.sum(total, 1, keep_dims=True) / count, mask=result < results)


def padded(x: torch.Tensor, dims: list[int]) -> tuple[list[int], list[int]]:
    """Sizes and strides of these dimensions of x, four each."""
    missing = 4 - len(dims)
    sizes, strides = [x.shape[dim] for dim in dims], [x.stride(dim) for dim in dims]
    return [1] * missing + sizes, [0] * missing + strides


def run(x: torch.Tensor, y: torch.Tensor, *, dims: str) -> None:
    """y = mean of x over the dimensions listed in `dims`, as "0,2"; they are of length one in y. Both contiguous."""
    averaged = [int(dim) for dim in dims.split(",")]
    sizes, strides = padded(x, [dim for dim in range(x.ndim) if dim not in averaged])
    lengths, steps = padded(x, averaged)
    results, count = y.numel(), prod(lengths)
    rows = min(ROWS, triton.next_power_of_2(results))
    block = min(ROWS * BLOCK // rows, triton.next_power_of_2(count))
    mean[(triton.cdiv(results, rows),)](
        x, y, results, count, *sizes[1:], *strides, *lengths[1:], *steps, rows, block, num_warps=WARPS
    )  # fmt: skip
