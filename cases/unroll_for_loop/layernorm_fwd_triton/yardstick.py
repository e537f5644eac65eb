"""The operator in plain torch, whose own layer norm knows no weight for each head."""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    y.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps) * weight)
