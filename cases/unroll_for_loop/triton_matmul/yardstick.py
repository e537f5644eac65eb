"""The operator in plain torch; float8 by its scaled product, which takes a transposed B alone.

It is not compiled: cuBLAS writes c as it is, compiled it would be copied there.
"""

from functools import cache

import torch

COMPILED = False


@cache
def one(device: torch.device) -> torch.Tensor:
    return torch.ones((), dtype=torch.float32, device=device)


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transposed: bool) -> None:
    right = b.T if transposed else b
    if a.dtype == torch.float16 or not (transposed and a.is_cuda):
        torch.matmul(a.to(c.dtype), right.to(c.dtype), out=c)
        return
    scale = one(a.device)
    torch._scaled_mm(a, right, scale, scale, out_dtype=c.dtype, out=c)
