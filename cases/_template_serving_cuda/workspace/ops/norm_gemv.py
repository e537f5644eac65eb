"""RMSNorm of a vector, and the product with a matrix that follows. OP_NORM_GEMV chooses who computes it.

    norm_gemv(x, norm, eps, weight, out=None) -> y = weight @ (x * rsqrt(mean(x^2) + eps) * norm)

    x       [k] or [1, k], bfloat16, contiguous, on the GPU
    norm    [k], bfloat16
    eps     float
    weight  [n, k], bfloat16, row-major, contiguous
    out, y  [n] or [1, n] like x, bfloat16; made by torch.empty where `out` is not given

Kernels sum in float32 and round the result once; torch's own rounds the normed vector, too. Every k and n from 1 on
is right. Large ones are fast where k is a multiple of 8 and addresses are multiples of 16. Nothing waits for the host,
so calls can be captured into a graph. The first call compiles, so it comes before the capture.
"""

from __future__ import annotations

import torch
from knobs import knob
from torch.nn import functional

CHOSEN: str = knob("OP_NORM_GEMV")
IS_STOCK = CHOSEN == "torch"


def norm_gemv_torch(
    x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """By two operators of torch."""
    y = functional.linear(functional.rms_norm(x, norm.shape, norm, eps), weight)
    return y if out is None else out.copy_(y)


if CHOSEN == "triton":
    from ops.triton.norm_gemv import norm_gemv
elif CHOSEN == "cuda":
    from ops.cuda.norm_gemv import norm_gemv
elif CHOSEN == "ptx":
    from ops.ptx.norm_gemv import norm_gemv
elif CHOSEN == "cute":
    from ops.cute.norm_gemv import norm_gemv
else:
    norm_gemv = norm_gemv_torch
