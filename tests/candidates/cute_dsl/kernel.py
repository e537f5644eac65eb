"""y = softmax(x) along rows of bfloat16, in CuTe DSL: one warp a row, which is read three times."""

from __future__ import annotations

import torch

try:
    import cutlass
    import cutlass.cute as cute
    from cuda.bindings import driver
    from cutlass.cute.runtime import from_dlpack
except ImportError as error:
    raise ImportError(f"CuTe DSL is not installed ({error}): pip install nvidia-cutlass-dsl") from error

WARP = 32
LOWEST = -3.0e38


@cute.kernel
def softmax(x: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    top = cutlass.Float32(LOWEST)
    for column in range(lane, columns, WARP):
        top = cute.arch.fmax(top, x[row, column].to(cutlass.Float32))
    top = cute.arch.warp_reduction_max(top)
    total = cutlass.Float32(0)
    for column in range(lane, columns, WARP):
        total += cute.math.exp(x[row, column].to(cutlass.Float32) - top)
    total = cute.arch.warp_reduction_sum(total)
    for column in range(lane, columns, WARP):
        power = cute.math.exp(x[row, column].to(cutlass.Float32) - top)
        y[row, column] = (power / total).to(cutlass.BFloat16)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, stream: driver.CUstream):
    rows, columns = x.shape
    softmax(x, y, columns).launch(grid=[rows, 1, 1], block=[WARP, 1, 1], stream=stream)


COMPILED: list[object] = []


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """y = softmax(x) along rows; both rows x columns, contiguous. Compiled once, for any shape."""
    tensors = [from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (x, y)]
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    if not COMPILED:
        COMPILED.append(cute.compile(launch, *tensors, stream))
    COMPILED[0](*tensors, stream)
