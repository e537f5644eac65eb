"""y = 2 x + 1, by kernels that need no compiler."""

from __future__ import annotations

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    torch.mul(x, 2, out=y)
    y.add_(1)
