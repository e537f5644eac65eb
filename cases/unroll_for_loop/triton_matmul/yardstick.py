"""The operator in plain torch; float8 by its scaled product, which takes a transposed B alone.

It is not compiled: cuBLAS writes c as it is, compiled it would be copied there.
"""

import torch


@torch.compiler.disable
def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transposed: bool) -> None:
    right = b.T if transposed else b
    if a.dtype == torch.float16 or not (transposed and a.is_cuda):
        torch.matmul(a.to(c.dtype), right.to(c.dtype), out=c)
        return
    one = torch.ones((), dtype=torch.float32, device=a.device)
    torch._scaled_mm(a, right, one, one, out_dtype=c.dtype, out=c)
