"""What decides a generated kernel when it is compiled."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype
from hillclimb.harness.records.record import Record

RowOperand = Literal["tokens", "features"]
"""Whose rows are on M of the tensor cores' instruction, which takes them by 64; the other operand's are on N, by 8."""

SHARED_BYTES = 227 << 10
"""Of a thread block."""

RESULT_BYTES: dict[Dtype, int] = {
    "bf16": 2,
    "f16": 2,
    "fp8": 2,
    "int8": 4,
    "scaled_fp8": 2,
    "scaled_int8": 2,
}

BOX = 256
"""Rows that one TMA instruction brings."""

ROW_BLOCK = 64
"""Rows of one instruction of the tensor cores, which a warpgroup gives together."""

WARPGROUP = 128
SLICE_BYTES = 128
"""Of a row, along K: what one swizzle of shared memory spans."""

LEAST_STEPS = 2
MAX_CLUSTER = 8
"""Thread blocks; 16 are not portable, and a product took twice as long with them."""

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
"""Thread blocks along rows and columns, of which a good one is."""


SIZE = r"[1-9]\d{0,3}"
"""Of a number in a kernel's name."""


class KernelPoint(Record):
    """One set of parameters. Each family of kernels has its own further ones."""

    generator: str
    dtype: Dtype
    tile: tuple[int, int, int]
    """Rows of both operands, and elements along K a step."""

    @property
    def is_grouped(self) -> bool:
        """Whether each group of tokens has weights of its own."""
        return False

    @property
    def words(self) -> tuple[str, ...]:
        """The family's parameters, for the name."""
        raise NotImplementedError

    @property
    def alike(self) -> tuple[object, ...]:
        """What kernels of one file have in common."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """An identifier of C, of all its parameters."""
        return "_".join((self.generator, self.dtype, "x".join(map(str, self.tile)), *self.words))

    @property
    def step_bytes(self) -> int:
        """Of shared memory, for one step along K of one tile."""
        rows, columns, inner = self.tile
        return (rows + columns) * inner * ITEM_BYTES[self.dtype]
