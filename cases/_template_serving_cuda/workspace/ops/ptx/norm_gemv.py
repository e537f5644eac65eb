"""norm_gemv in PTX: launches norm_gemv.ptx, which the first call assembles."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import torch
from knobs import knob
from ops.arguments import norm_gemv_output
from ops.cuda_code import Kernel, assemble_ptx

SOURCE = Path(__file__).with_name("norm_gemv.ptx")
ROWS = 4
"""Of a block, as they are written out in norm_gemv.ptx."""
THREADS = 32 * knob("NORM_GEMV_WARPS")

KERNEL = Kernel(partial(assemble_ptx, SOURCE), "norm_gemv_ptx")


def norm_gemv(
    x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """y = weight @ (x * rsqrt(mean(x^2) + eps) * norm); shapes and dtypes are those of the family.

    Raises ValueError for other ones, and RuntimeError with the assembler's or the driver's words.
    """
    y = norm_gemv_output(x, norm, weight, out)
    n, k = weight.shape
    KERNEL((math.ceil(n / ROWS), 1, 1), (THREADS, 1, 1), x, norm, weight, y, float(eps), n, k)
    return y
