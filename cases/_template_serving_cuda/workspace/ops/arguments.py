"""What kernels ask of their arguments: they are handed addresses, and would read on beyond a wrong shape."""

from __future__ import annotations

import torch


def norm_gemv_output(
    x: torch.Tensor, norm: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    """`out`, or a new tensor for the result: [n] or [1, n] like x, bfloat16.

    Raises ValueError where shapes, dtypes, strides or devices are not those of the family.
    """
    if weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(f"weight is {list(weight.shape)}; give a matrix [n, k] that is not empty")
    n, k = weight.shape
    shape = (*x.shape[:-1], n)
    if x.ndim not in (1, 2) or x.shape[-1] != k or x.numel() != k:
        raise ValueError(
            f"x is {list(x.shape)}; give one vector, [{k}] or [1, {k}], for a weight of [{n}, {k}]"
        )
    if norm.shape != (k,):
        raise ValueError(f"norm is {list(norm.shape)}; give [{k}], as long as a row of the weight")
    y = torch.empty(shape, dtype=torch.bfloat16, device=weight.device) if out is None else out
    if y.shape != shape:
        raise ValueError(f"out is {list(y.shape)}; give {list(shape)}")
    for name, tensor in (("x", x), ("norm", norm), ("weight", weight), ("out", y)):
        if tensor.dtype != torch.bfloat16 or not tensor.is_contiguous() or tensor.device != weight.device:
            raise ValueError(
                f"{name} is {tensor.dtype} on {tensor.device}, contiguous: {tensor.is_contiguous()}; "
                f"give contiguous bfloat16 on {weight.device}"
            )
    return y
