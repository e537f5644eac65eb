"""`norm_gemv` in C, compiled in the sandbox before anything is imported."""

from __future__ import annotations

from pathlib import Path

import torch

from hillclimb.harness.serving.backends.native_function import native_function

_norm_gemv = native_function(Path(__file__).with_name("norm_gemv.c"), "norm_gemv")


def norm_gemv_c(x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor) -> torch.Tensor:
    """`x` [k], `norm` [k] and `weight` [n, k], float32 and contiguous: [n]. Raises TypeError for others."""
    y = torch.empty(weight.shape[0])
    _norm_gemv(x, norm, weight, y, eps=eps)
    return y
