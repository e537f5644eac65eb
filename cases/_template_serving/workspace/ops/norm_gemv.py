"""RMSNorm of a vector, and the product with a matrix that follows. OP_NORM_GEMV chooses who computes it."""

from __future__ import annotations

import torch
from knobs import knob
from torch.nn import functional

CHOSEN: str = knob("OP_NORM_GEMV")
IS_STOCK = CHOSEN == "torch"


def norm_gemv_torch(x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor) -> torch.Tensor:
    """`x` [k] and `norm` [k] of `weight`'s dtype, `weight` [n, k]: [n]."""
    return functional.linear(functional.rms_norm(x, norm.shape, norm, eps), weight)


if CHOSEN == "c":
    from ops.c.norm_gemv import norm_gemv_c as norm_gemv
elif CHOSEN == "numba":
    from ops.numba.norm_gemv import norm_gemv_numba as norm_gemv
else:
    norm_gemv = norm_gemv_torch
