"""What torch calls: cuBLAS with its heuristic."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import GemmShape, stored

HEURISTIC = "heuristic"


class Cublas:
    """torch.mm, torch._scaled_mm for fp8 with scales and without, and torch._int_mm for int8."""

    def software(self) -> dict[str, str]:
        """Torch's own version says all."""
        return {}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """One, whatever the shape. Raises UnsupportedError for int8 with scales, or of fewer than 17 rows, and for fp8
        whose n or k is no multiple of 16.
        """
        if shape.dtype == "scaled_int8":
            raise UnsupportedError("torch has no product of int8 with scales")
        if stored(shape.dtype) == "fp8" and (shape.n % 16 or shape.k % 16):
            raise UnsupportedError(
                f"torch._scaled_mm takes multiples of 16, not n = {shape.n}, k = {shape.k}"
            )
        if shape.dtype == "int8" and shape.m <= 16:
            raise UnsupportedError(f"torch._int_mm takes 17 rows or more, not {shape.m}")
        return [HEURISTIC]

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """It, for the shape's dtype."""
        if shape.dtype == "fp8":
            one = torch.ones((), device="cuda")
            return lambda to: _scaled(to, one, one)
        if shape.dtype == "scaled_fp8":
            return lambda to: _scaled(to, to.x_scales[:, None], to.w_scales[None])
        if shape.dtype == "int8":
            return _whole
        return _plain


def _plain(to: Operands) -> None:
    torch.mm(to.x, to.w.t(), out=to.out)


def _scaled(to: Operands, x_scales: torch.Tensor, w_scales: torch.Tensor) -> None:
    torch._scaled_mm(
        *(to.x, to.w.t(), x_scales, w_scales), out_dtype=torch.bfloat16, use_fast_accum=True, out=to.out
    )


def _whole(to: Operands) -> None:
    torch._int_mm(to.x, to.w.t(), out=to.out)
