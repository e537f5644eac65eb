"""norm_gemv in CuTe DSL: a block multiplies a few rows of the weight, its threads side by side along k.

The norm's factor is the same for all elements, so it multiplies the finished sums. Nothing waits for it, and
the weight is read from the start. x and norm come from the L2; the weight is read once, and leaves the L1
first.

It is compiled in the first call: for rows that all begin at a multiple of 16 bytes, and for all others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from knobs import knob
from ops.arguments import norm_gemv_output

try:
    import cutlass
    import cutlass.cute as cute
    from cuda.bindings import driver
    from cutlass.cute.runtime import make_ptr
except ImportError as error:
    raise ImportError(
        f"CuTe DSL is not installed ({error}): pip install 'nvidia-cutlass-dsl[cu13]', or choose another "
        "OP_NORM_GEMV"
    ) from error

ROWS, WARPS = knob("NORM_GEMV_ROWS"), knob("NORM_GEMV_WARPS")
THREADS = 32 * WARPS
ALIGNED = 8
"""Columns that a thread loads at a time where rows are aligned: 16 bytes."""


@cute.kernel
def norm_gemv_cute(
    x: cute.Tensor,
    norm: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    eps: cutlass.Float32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    columns: cutlass.Constexpr,
):
    """Rows and vectors are cut into pieces of `columns`.

    Rows that do not exist are read as the last one and not written.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp, lane = thread // 32, thread % 32
    first = block * ROWS

    packed = cute.make_rmem_tensor((columns, ROWS), cutlass.BFloat16)
    values = cute.make_rmem_tensor((columns, 2), cutlass.BFloat16)
    sums = cute.make_rmem_tensor((ROWS + 1,), cutlass.Float32)
    sums.fill(0.0)
    for piece in cutlass.range(thread, k // columns, THREADS, unroll=2):
        for r in cutlass.range_constexpr(ROWS):
            row = cutlass.min(first + r, n - 1)
            cute.autovec_copy(
                weight[None, piece, row],
                packed[None, r],
                l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.EVICT_FIRST,
            )
        cute.autovec_copy(x[None, piece], values[None, 0])
        cute.autovec_copy(norm[None, piece], values[None, 1])
        for i in cutlass.range_constexpr(columns):
            value = values[i, 0].to(cutlass.Float32)
            weighted = value * values[i, 1].to(cutlass.Float32)
            sums[ROWS] += value * value
            for r in cutlass.range_constexpr(ROWS):
                sums[r] += packed[i, r].to(cutlass.Float32) * weighted

    parts = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((ROWS + 1, WARPS)), byte_alignment=16
    )
    for r in cutlass.range_constexpr(ROWS + 1):
        total = cute.arch.warp_reduction_sum(sums[r])
        if lane == 0:
            parts[r, warp] = total
    cute.arch.sync_threads()
    if thread < ROWS and first + thread < n:
        total = cutlass.Float32(0.0)
        squares = cutlass.Float32(0.0)
        for w in cutlass.range_constexpr(WARPS):
            total += parts[thread, w]
            squares += parts[ROWS, w]
        factor = cute.math.rsqrt(squares / k.to(cutlass.Float32) + eps)
        y[first + thread] = (total * factor).to(cutlass.BFloat16)


@cute.jit
def launch(
    x: cute.Pointer,
    norm: cute.Pointer,
    weight: cute.Pointer,
    y: cute.Pointer,
    eps: cutlass.Float32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    stream: driver.CUstream,
    columns: cutlass.Constexpr,
):
    """Vectors and matrix as [columns, pieces] and [columns, pieces, n]."""
    pieces = k // columns
    vector = cute.make_layout((columns, pieces), stride=(1, columns))
    width = cute.assume(cutlass.Int64(k), divby=columns)
    matrix = cute.make_layout((columns, pieces, n), stride=(1, columns, width))
    norm_gemv_cute(
        cute.make_tensor(x, vector),
        cute.make_tensor(norm, vector),
        cute.make_tensor(weight, matrix),
        cute.make_tensor(y, cute.make_layout(n)),
        eps,
        n,
        k,
        columns,
    ).launch(grid=[cute.ceil_div(n, ROWS), 1, 1], block=[THREADS, 1, 1], stream=stream)


def pointer(address: int, columns: int) -> Any:
    """CuTe's pointer to bfloat16, of which `columns` are loaded at a time."""
    return make_ptr(cutlass.BFloat16, address, cute.AddressSpace.gmem, assumed_align=2 * columns)


def compiled(columns: int, *options: Any) -> Any:
    """The kernel that loads this many columns at a time. `options` are CuTe's: cute.GPUArch("sm_90a")."""
    vectors = [pointer(16, columns)] * 3
    stream = driver.CUstream(0)
    compiler = cute.compile[options] if options else cute.compile
    return compiler(launch, *vectors, pointer(16, 1), 1e-5, 1, columns, stream, columns)


@cache
def kernel(columns: int) -> Any:
    """The same for the GPU that is there, compiled once."""
    return compiled(columns)


def norm_gemv(
    x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """y = weight @ (x * rsqrt(mean(x^2) + eps) * norm); shapes and dtypes are those of the family.

    Raises ValueError for other ones, and CuTe's own errors where it does not compile.
    """
    y = norm_gemv_output(x, norm, weight, out)
    n, k = weight.shape
    addresses = [tensor.data_ptr() for tensor in (x, norm, weight)]
    is_aligned = k % ALIGNED == 0 and all(address % 16 == 0 for address in addresses)
    columns = ALIGNED if is_aligned else 1
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    pointers = [pointer(address, columns) for address in addresses]
    kernel(columns)(*pointers, pointer(y.data_ptr(), 1), float(eps), n, k, stream)
    return y
