"""`norm_gemv` by numba."""

from __future__ import annotations

import numba
import numpy as np
import torch


@numba.njit("void(float32[::1], float32[::1], float32, float32[:, ::1], float32[::1])", fastmath=True)
def norm_gemv(x, norm, eps, weight, y):  # type: ignore[no-untyped-def]
    """`weight` times the normed `x`, into `y`."""
    squares = np.float32(0)
    for at in range(x.size):
        squares += x[at] * x[at]
    scale = np.float32(1) / np.sqrt(squares / np.float32(x.size) + eps)
    for row in range(y.size):
        total = np.float32(0)
        for at in range(x.size):
            total += x[at] * scale * norm[at] * weight[row, at]
        y[row] = total


def norm_gemv_numba(x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor) -> torch.Tensor:
    """`x` [k], `norm` [k] and `weight` [n, k], float32 and contiguous, on the CPU: [n]."""
    y = torch.empty(weight.shape[0])
    held = (np.asarray(one.detach()) for one in (x, norm, weight, y))
    vector, scales, matrix, out = held
    norm_gemv(vector, scales, np.float32(eps), matrix, out)
    return y
