"""norm_gemv in CUDA C++: launches norm_gemv.cu, which the first call compiles."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import torch
from knobs import knob
from ops.arguments import norm_gemv_output
from ops.cuda_code import Kernel, compile_cuda

SOURCE = Path(__file__).with_name("norm_gemv.cu")
ROWS, THREADS = knob("NORM_GEMV_ROWS"), 32 * knob("NORM_GEMV_WARPS")
MACROS = (f"--define-macro=ROWS={ROWS}", f"--define-macro=THREADS={THREADS}")

KERNEL = Kernel(partial(compile_cuda, SOURCE, *MACROS), "norm_gemv_cuda")


def norm_gemv(
    x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """y = weight @ (x * rsqrt(mean(x^2) + eps) * norm); shapes and dtypes are those of the family.

    Raises ValueError for other ones, and RuntimeError with the compiler's or the driver's words.
    """
    y = norm_gemv_output(x, norm, weight, out)
    n, k = weight.shape
    KERNEL((math.ceil(n / ROWS), 1, 1), (THREADS, 1, 1), x, norm, weight, y, float(eps), n, k)
    return y
