"""The operator in plain torch; float8 by its scaled product, which takes a transposed B alone."""

import torch


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transposed: bool) -> None:
    right = b.T if transposed else b
    if a.dtype == torch.float16 or not (transposed and a.is_cuda):
        torch.matmul(a.to(c.dtype), right.to(c.dtype), out=c)
        return
    one = torch.ones((), dtype=torch.float32, device=a.device)
    c.copy_(torch._scaled_mm(a, right, one, one, out_dtype=c.dtype))
