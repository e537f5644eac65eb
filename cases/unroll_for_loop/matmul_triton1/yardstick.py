"""The operator in plain torch, and not compiled: cuBLAS writes c as it is, compiled it would be copied there."""

import torch

COMPILED = False


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.matmul(a, b, out=c)
