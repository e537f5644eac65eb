"""What the knobs make of a thread block: its tile, its warpgroups, its registers and its shared memory.

The rules that a plan must obey are the constraints of knobs.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE = "{{dtype}}"
ITEM_BYTES = 2

ROW_BLOCK, WARPGROUP = 64, 128
SLICE_BYTES = 128
"""Of a row, along K: what one swizzle of shared memory spans."""

INSTRUCTION_BYTES = 32
"""Of a row, along K, that one instruction of the tensor cores takes."""

REGISTERS, MAX_REGISTERS, PRODUCER_REGISTERS = 65536, 255, 40
"""Of a multiprocessor, of a thread, and of a thread of the producer after it gave up the rest."""

SHARED_BYTES, MULTIPROCESSOR_BYTES = 227 << 10, 228 << 10
SYSTEM_BYTES, RESERVED_BYTES = 1 << 10, 2 << 10
"""Of a block: what the system keeps, and what barriers and the alignment of the steps take."""

STAGING_BYTES = 144 * 64
"""Of a consumer: 64 columns of results on their way out, in rows that are 16 bytes apart."""

MAX_STEPS = 16


@dataclass(frozen=True)
class Plan:
    """One kernel. Rows and columns are those of the product as the kernel sees it."""

    rows: int
    columns: int
    consumers: tuple[int, int]
    """Warpgroups that share a tile, along both."""
    slices: int
    """Of 128 bytes of K, a step."""
    splits: int
    """Thread blocks of a cluster that share K."""
    is_persistent: bool
    blocks: int
    """Of a multiprocessor."""

    @property
    def warpgroups(self) -> int:
        """Consumers."""
        return self.consumers[0] * self.consumers[1]

    @property
    def threads(self) -> int:
        """Of a block: consumers and the producer."""
        return WARPGROUP * (1 + self.warpgroups)

    @property
    def row_blocks(self) -> int:
        """Instructions, one below the other, of one consumer."""
        return self.rows // (ROW_BLOCK * self.consumers[0])

    @property
    def own_columns(self) -> int:
        """Of one consumer."""
        return self.columns // self.consumers[1]

    @property
    def registers(self) -> int:
        """Of a consumer's thread, after the producer gave up what it does not need."""
        first = min(REGISTERS // (self.threads * self.blocks) // 8 * 8, MAX_REGISTERS)
        if first == MAX_REGISTERS:
            return MAX_REGISTERS
        return (first * (self.warpgroups + 1) - PRODUCER_REGISTERS) // self.warpgroups // 8 * 8

    @property
    def step_bytes(self) -> int:
        """Of shared memory, for one step along K."""
        return (self.rows + self.columns) * self.slices * SLICE_BYTES

    @property
    def room(self) -> int:
        """Bytes of shared memory of a block, without what it cannot use."""
        share = MULTIPROCESSOR_BYTES // self.blocks - SYSTEM_BYTES
        return min(SHARED_BYTES, share) - RESERVED_BYTES

    @property
    def own_staging(self) -> int:
        """Bytes of results on their way out that lie beside the steps; else they lie where the steps were."""
        return self.warpgroups * STAGING_BYTES if self.is_persistent else 0

    @property
    def steps(self) -> int:
        """In flight, at the most."""
        return min((self.room - self.own_staging) // self.step_bytes, MAX_STEPS)

    @property
    def exchange(self) -> int:
        """Bytes of shared memory when a tile is done: parts of others' sums, and results on their way out."""
        part = -(-self.own_columns // 8 // self.splits) * self.row_blocks * WARPGROUP * 16
        return self.warpgroups * ((self.splits - 1) * part + STAGING_BYTES)

    def source(self) -> str:
        """What gemm.cu lacks: the instruction, and this plan as its type `Chosen`."""
        gives = self.registers < MAX_REGISTERS
        numbers = (
            *self.consumers,
            *(self.row_blocks, self.columns, self.slices, self.splits, self.is_persistent, self.blocks),
            *((PRODUCER_REGISTERS, self.registers) if gives else (0, 0)),
            *(self.room, STAGING_BYTES, self.exchange),
        )
        plan = ", ".join(str(int(number)) for number in numbers)
        return (
            f"namespace generated {{\n{instruction(self.own_columns)}struct Chosen : Plan<{plan}> {{}};\n}}\n"
        )


def instruction(columns: int) -> str:
    """wgmma of 64 rows and so many columns: its sums, descriptors and flag are numbered in this order."""
    count = columns // 2
    kind = f"m64n{columns}k{INSTRUCTION_BYTES // ITEM_BYTES}.f32.{DTYPE}.{DTYPE}"
    sums = "{" + ", ".join(f"%{at}" for at in range(count)) + "}"
    outputs = ", ".join(f'"+f"(sums[{at}])' for at in range(count))
    return f"""template <>
struct Instruction<{columns}> {{
  static __device__ __forceinline__ void multiply(float* sums, uint64_t a, uint64_t b, int adds) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.{kind} {sums}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}"
        : {outputs}
        : "l"(a), "l"(b), "r"(adds));
  }}
}};
"""
