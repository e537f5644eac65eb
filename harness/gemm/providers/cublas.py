"""What torch calls: cuBLAS with its heuristic, and for groups torch's own product."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import UNSCALED, Dtype, GemmShape, stored

HEURISTIC = "heuristic"

GROUPED, ONE_BY_ONE = "grouped_mm", "one_by_one"
"""Of products of groups: one call, which is told on the device where they end, or a call for each, of a size that is
known before. The latter is no way to serve a model, whose router has to be waited for then."""

GROUPED_DTYPES: dict[Dtype, tuple[str, ...]] = {"bf16": (GROUPED, ONE_BY_ONE), "scaled_fp8": (GROUPED,)}
"""That torch has one call for. cuBLASLt takes scales from multiples of 16 bytes on, where no group need begin."""


class Cublas:
    """torch.mm, torch._scaled_mm for fp8 with scales and without, and torch._int_mm for int8.

    Groups have torch._grouped_mm or torch._scaled_grouped_mm, and the same beside it, one group after another.
    """

    def software(self) -> dict[str, str]:
        """Torch's own version says all."""
        return {}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """One, whatever the shape; two of groups in bf16.

        Raises UnsupportedError for int8 with scales, of groups or of fewer than 17 rows, and for fp8 whose n or k is no
        multiple of 16.
        """
        if shape.dtype == "scaled_int8":
            raise UnsupportedError("torch has no product of int8 with scales")
        if stored(shape.dtype) == "fp8" and (shape.n % 16 or shape.k % 16):
            raise UnsupportedError(
                f"torch._scaled_mm takes multiples of 16, not n = {shape.n}, k = {shape.k}"
            )
        if shape.dtype == "int8" and (shape.m <= 16 or shape.groups > 1):
            least = shape.m if shape.groups == 1 else "as few as a group may have"
            raise UnsupportedError(f"torch._int_mm takes 17 rows or more, not {least}")
        if shape.groups == 1:
            return [HEURISTIC]
        return GROUPED_DTYPES.get(shape.dtype, (ONE_BY_ONE,))

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of those, for the shape's dtype."""
        if kernel == GROUPED:
            return _scaled_groups if shape.dtype in UNSCALED else _groups
        if kernel == ONE_BY_ONE:
            single = self.launch(shape.one_group, HEURISTIC)
            return lambda to: _each(single, to)
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


def _each(single: Launch, to: Operands) -> None:
    for one in to.each_group():
        single(one)


def _groups(to: Operands) -> torch.Tensor:
    return torch._grouped_mm(to.x, to.w.mT, offs=to.group_ends)


def _scaled_groups(to: Operands) -> torch.Tensor:
    return torch._scaled_grouped_mm(
        *(to.x, to.w.mT, to.x_scales, to.w_scales),
        offs=to.group_ends,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def _whole(to: Operands) -> None:
    torch._int_mm(to.x, to.w.t(), out=to.out)
