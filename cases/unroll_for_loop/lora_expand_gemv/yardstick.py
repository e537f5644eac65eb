"""The operator in plain torch: every request gathers its adapter's weights."""

import torch


def run(
    x: torch.Tensor,
    weights: torch.Tensor,
    adapter_of: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool,
) -> None:
    gathered = weights[adapter_of.clamp_min(0)]
    product = (gathered.float() * x[:, None].float()).sum(dim=2).masked_fill((adapter_of < 0)[:, None], 0)
    out.copy_(product + base.float() if accumulate else product)
