"""Parameters of a kernel of our own: TMA, wgmma, and a role for each warpgroup."""

from __future__ import annotations

import re
from typing import Literal, get_args

from hillclimb.harness.gemm.families.point import ROW_BLOCK, SIZE, WARPGROUP, KernelPoint
from hillclimb.harness.gemm.shape import Dtype

REGISTERS = 65536
"""Of a multiprocessor."""

MAX_REGISTERS = 255
"""Of a thread."""

PRODUCER_REGISTERS = 40

WarpgroupGenerator = Literal["warpgroup_gemm", "grouped_gemm"]
"""The second multiplies each group of tokens by weights of its own."""

NUMBERS = ("rows", "columns", "inner", "down", "across", "splits", "blocks")
NAME = re.compile(
    rf"(?P<generator>{'|'.join(get_args(WarpgroupGenerator))})_(?P<dtype>{'|'.join(get_args(Dtype))})"
    rf"_(?P<rows>{SIZE})x(?P<columns>{SIZE})x(?P<inner>{SIZE})_(?P<down>{SIZE})x(?P<across>{SIZE})_(split(?P<splits>{SIZE})_(?P<style>once|persistent)|flexible)_by(?P<blocks>{SIZE})"
)


class WarpgroupPoint(KernelPoint):
    """One of them. Which operand is on the rows, the cluster and the order of tiles are chosen when it is called."""

    generator: WarpgroupGenerator = "warpgroup_gemm"
    consumers: tuple[int, int]
    """Warpgroups that share a tile, along both."""
    splits: int = 1
    """Thread blocks of a cluster that share K. Their sums meet in shared memory, in a fixed order."""
    is_persistent: bool = False
    """Whether a block takes one tile after another."""
    blocks: int = 1
    """Of a multiprocessor."""
    is_flexible: bool = False
    """Whether splits, and how many tiles a block takes, are chosen when it is called, too."""

    @classmethod
    def named(cls, name: str) -> WarpgroupPoint | None:
        """That of this name; None where it is of none."""
        found = NAME.fullmatch(name)
        if found is None:
            return None
        rows, columns, inner, down, across, splits, blocks = (int(one or 1) for one in found.group(*NUMBERS))
        return cls.model_validate(
            {
                **{word: found[word] for word in ("generator", "dtype")},
                "tile": (rows, columns, inner),
                "consumers": (down, across),
                "splits": splits,
                "is_persistent": found["style"] == "persistent",
                "blocks": blocks,
                "is_flexible": found["style"] is None,
            }
        )

    @property
    def is_grouped(self) -> bool:
        return self.generator == "grouped_gemm"

    @property
    def words(self) -> tuple[str, ...]:
        """How it shares its work."""
        style = f"split{self.splits}_{'persistent' if self.is_persistent else 'once'}"
        style = "flexible" if self.is_flexible else style
        return ("x".join(map(str, self.consumers)), style, f"by{self.blocks}")

    @property
    def alike(self) -> tuple[object, ...]:
        """All but the columns."""
        rows, _, inner = self.tile
        own = (self.consumers, self.splits, self.is_persistent, self.blocks, self.is_flexible)
        return (self.generator, self.dtype, rows, inner, *own)

    def fixed(self, splits: int, *, is_persistent: bool) -> WarpgroupPoint:
        """The kernel that has compiled in what is chosen for a flexible one."""
        update = {"splits": splits, "is_persistent": is_persistent, "is_flexible": False}
        return self.model_copy(update=update)

    @property
    def warpgroups(self) -> int:
        """Consumers."""
        return self.consumers[0] * self.consumers[1]

    @property
    def row_blocks(self) -> int:
        """Instructions of the tensor cores, one below the other, of one consumer."""
        return self.tile[0] // (ROW_BLOCK * self.consumers[0])

    @property
    def own_columns(self) -> int:
        """Of one consumer."""
        return self.tile[1] // self.consumers[1]

    @property
    def sums(self) -> int:
        """Of one of its threads."""
        return self.row_blocks * self.own_columns // 2

    @property
    def first_registers(self) -> int:
        """Of a thread at the start."""
        share = REGISTERS // (WARPGROUP * (self.warpgroups + 1) * self.blocks) // 8 * 8
        return min(share, MAX_REGISTERS)

    @property
    def registers(self) -> int:
        """Of a consumer's thread, after the producer gave up what it does not need; all are of one pool."""
        if self.first_registers == MAX_REGISTERS:
            return MAX_REGISTERS
        pool = self.first_registers * (self.warpgroups + 1)
        return (pool - PRODUCER_REGISTERS) // self.warpgroups // 8 * 8
