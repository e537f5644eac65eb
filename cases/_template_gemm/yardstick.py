"""What torch calls for this product, cuBLAS, and not compiled: it writes out as it is."""

import torch

COMPILED = False


def run(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """out[m, n] = x[m, k] w[n, k]^T."""
    torch.mm(x, w.t(), out=out)
