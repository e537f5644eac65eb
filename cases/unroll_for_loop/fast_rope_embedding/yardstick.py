"""The operator and its derivative in plain torch."""

import torch


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x1, x2 = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dq_rotated: torch.Tensor,
    dk_rotated: torch.Tensor,
    q_rotated: torch.Tensor,
    k_rotated: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
) -> None:
    q_rotated.copy_(rotated(q, cos, sin))
    k_rotated.copy_(rotated(k, cos, sin))
    dq.copy_(rotated(dq_rotated, cos, -sin))
    dk.copy_(rotated(dk_rotated, cos, -sin))
