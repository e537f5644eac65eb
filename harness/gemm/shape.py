"""One matrix product: C = A B, or one such product for each group of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

Dtype = Literal["bf16", "f16", "fp8", "int8", "scaled_fp8", "scaled_int8"]
"""Of A and B. fp8 is e4m3fn. Those that are scaled have a float32 for each row of A and each column of B, by which the
result is multiplied: one a token and one an output channel, as quantised models have them."""

UNSCALED: dict[Dtype, Dtype] = {"scaled_fp8": "fp8", "scaled_int8": "int8"}
"""How the operands of scaled ones are stored."""

ITEM_BYTES: dict[Dtype, int] = {"bf16": 2, "f16": 2, "fp8": 1, "int8": 1, "scaled_fp8": 1, "scaled_int8": 1}
"""Bytes of one element of A or B."""

OUT_BYTES = 2
"""Bytes of one element of C: f16 where A is f16, else bf16."""


def stored(dtype: Dtype) -> Dtype:
    """The dtype of the operands themselves, without their scales."""
    return UNSCALED.get(dtype, dtype)


@dataclass(frozen=True)
class GemmShape:
    """A is m x k, B is k x n, C is m x n. With several groups A's rows are spread over as many matrices B."""

    name: str
    m: int
    """Rows of A; of all groups together."""
    n: int
    k: int
    dtype: Dtype
    groups: int = 1

    def named(self, name: str) -> GemmShape:
        """The same under another name."""
        return replace(self, name=name)

    @property
    def sizes(self) -> str:
        """As names have them."""
        groups = f"e{self.groups}_" if self.groups > 1 else ""
        return f"{groups}m{self.m}_n{self.n}_k{self.k}"

    @property
    def used_groups(self) -> int:
        """Matrices B that any row meets."""
        return min(self.groups, self.m)

    @property
    def one_group(self) -> GemmShape:
        """The product of a group that has the most rows; they are spread evenly."""
        return replace(self, m=ceil(self.m / self.used_groups), groups=1)

    @property
    def flops(self) -> int:
        """Floating-point operations: each of the m rows meets one matrix B."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """All operands are read once, C is written once."""
        return self.read_bytes + self.m * self.n * OUT_BYTES

    @property
    def read_bytes(self) -> int:
        """A, and every B that any row meets."""
        return (self.m * self.k + self.used_groups * self.n * self.k) * ITEM_BYTES[self.dtype]
