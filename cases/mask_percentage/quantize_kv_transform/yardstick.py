"""The operator in plain torch."""

import torch


def run(x: torch.Tensor, destination: torch.Tensor, q: torch.Tensor, scales: torch.Tensor) -> None:
    highest = x.abs().amax(dim=2).float()
    levels = x.float() * 127 / highest.masked_fill(highest == 0, 1)[..., None]
    q[destination] = levels.round().to(torch.int8)
    scales[destination] = highest / 127
