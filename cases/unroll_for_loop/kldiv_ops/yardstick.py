"""The operator and its derivative in plain torch."""

import torch


def run(
    x: torch.Tensor,
    target: torch.Tensor,
    dloss: torch.Tensor,
    loss: torch.Tensor,
    dx: torch.Tensor,
    *,
    reduction: str,
    log_target: bool,
) -> None:
    terms = torch.nn.functional.kl_div(x, target, reduction="none", log_target=log_target)
    factor = {"mean": 1 / x.numel(), "batchmean": 1 / len(x)}.get(reduction, 1.0)
    loss.copy_(terms if reduction == "none" else terms.sum() * factor)
    dx.copy_((target.exp() if log_target else target) * dloss * -factor)
