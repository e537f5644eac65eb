"""The operator in plain torch."""

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(torch.softmax(x, dim=1))
