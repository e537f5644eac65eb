"""The operator in plain torch."""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    y.copy_(torch.nn.functional.rms_norm(x, weight.shape, weight, eps))
