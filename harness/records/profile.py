"""Where a side's time goes: buckets, counters, masked lanes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hillclimb.harness.records.bucket import Bucket
from hillclimb.harness.records.record import Record
from hillclimb.harness.records.timing import ProblemTime


class Ceilings(Record):
    """What the device was measured to do at its best; units per second."""

    flops: float
    """Of the fastest matrix product in the dtype that `how` names."""
    bytes: float
    """Read once and written once, by a copy between arrays that no cache holds."""
    how: str
    """What was run to find them."""
    read_bytes: float | None = None
    """Only read, where that was measured."""
    write_bytes: float | None = None
    """Only written, where that was measured."""
    flops_by_dtype: dict[str, float] = Field(default_factory=dict)
    """Of matrix products, by torch's name for the inputs' dtype, where more than one was measured."""


class KernelCounters(Record):
    """One GPU kernel of a call; figures are means over its launches, None where ncu told none."""

    kernel: str
    launches: int
    seconds: float | None = None
    """Of one launch, under ncu and with cold caches."""
    dram_read: float | None = None
    """Bytes of one launch."""
    dram_written: float | None = None
    l2_hits: float | None = None
    """Share of L2 accesses, 0 to 1."""
    occupancy: float | None = None
    """Active warps as a share of the most an SM can hold."""
    arithmetic: float | None = None
    """How busy the SMs' busiest pipe was, 0 to 1."""
    memory: float | None = None
    """How busy the memory system's busiest part was, 0 to 1."""
    tensor_cores: float | None = None
    """Share of the time in which they worked, 0 to 1."""
    registers: float | None = None
    """Per thread."""
    shared_memory: float | None = None
    """Bytes per block."""
    local_memory: float | None = None
    """Instructions of one launch that load from or store to local memory; above 0 registers are spilled, mostly."""
    stalls: tuple[tuple[str, float], ...] = ()
    """What warps waited for most, in cycles per instruction issued."""

    @property
    def bytes_per_second(self) -> float | None:
        """What one launch read from and wrote to DRAM, over its time."""
        if self.dram_read is None or self.dram_written is None or not self.seconds:
            return None
        return (self.dram_read + self.dram_written) / self.seconds


class KernelRuns(Record):
    """One Triton kernel as it was interpreted in a call."""

    kernel: str
    """Its function's name; where two have the same, with its place."""
    place: str
    """File of the workspace and line of its def."""
    launches: int
    programs: int
    """In all launches together."""


class LaneCount(Record):
    """All loads, stores or atomics of one kernel at one line, in its own code or in that of a function it calls."""

    kernel: str
    place: str
    source: str
    """The statement there, as the judge reads it; empty where it finds none."""
    kind: Literal["load", "store", "atomic"]
    runs: int
    """Times that one was made, by every program."""
    lanes: int
    """Elements of all of them, masked off or not."""
    masked: int
    """Lanes whose mask is false, or that lie outside of a block pointer's or descriptor's bounds."""
    bytes: int
    """Of the lanes that are not masked off; an address counts for every lane that has it."""

    @property
    def share(self) -> float:
        """Of the lanes, masked off: 0 to 1."""
        return self.masked / self.lanes if self.lanes else 0.0


class TripCount(Record):
    """One loop of one kernel, in its own code or in that of a function it calls."""

    kernel: str
    place: str
    source: str
    """The loop's head, as the judge reads it; empty where it finds none."""
    entries: int
    """Times that the loop was reached, by every program."""
    trips: int
    """Times that its body began, in all entries together."""
    fewest: int
    """Trips of one entry, at the least."""
    most: int

    @property
    def mean(self) -> float:
        """Trips of one entry."""
        return self.trips / self.entries if self.entries else 0.0


class Lanes(Record):
    """One call on one problem under Triton's interpreter: every access and every trip, counted and not sampled.

    The interpreter is the candidate's own process, so a lead and not a measurement; nothing in it decides anything.
    """

    problem: str
    kernels: tuple[KernelRuns, ...] = ()
    accesses: tuple[LaneCount, ...] = ()
    """In the order of kernels, files and lines."""
    loops: tuple[TripCount, ...] = ()
    left_out: int = 0
    """Lines for which there was no room: those with the fewest lanes or trips."""
    detail: str = ""
    """Why there is nothing, where there is nothing."""

    def masked_share(self, kernel: str = "") -> float | None:
        """Of all lanes of one kernel, or of all kernels, those masked off; None where there were none."""
        counted = [access for access in self.accesses if kernel in ("", access.kernel)]
        lanes = sum(access.lanes for access in counted)
        return sum(access.masked for access in counted) / lanes if lanes else None


class LaneReport(Record):
    """Lanes and trips of several problems."""

    problems: tuple[Lanes, ...]
    seconds: float = 0.0


class Profile(Record):
    """A look inside one side, for proposers and reports; nothing in it decides anything."""

    problems: tuple[ProblemTime, ...]
    buckets: tuple[Bucket, ...] = ()
    """Largest share first. Told by the candidate's own process, so a lead and not a measurement."""
    counters: tuple[KernelCounters, ...] = ()
    """What a GPU's hardware counted on the suite's first problem; longest kernel first. A lead, like the buckets."""
    lanes: tuple[Lanes, ...] = ()
    """What Triton kernels mask off and how often their loops run, on small problems; a lead, like the buckets."""
    ceilings: Ceilings | None = None
    detail: str = ""
    """Why there are no buckets, where there are none; else what makes the figures doubtful, such as a busy machine."""
    seconds: float = 0.0
