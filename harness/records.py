"""What judge and controller say to each other, and what the ledger keeps: frozen, typed, JSON.

Units: seconds for time, ratios for speedups (incumbent's time over candidate's; above 1 is faster).
Unknown fields are errors, so a record written by another version is noticed rather than half read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

SCHEMA = 1
"""Version of every record below; raised when a field changes meaning."""


class Record(BaseModel):
    """A frozen value that crosses a process or a file border as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Reason(StrEnum):
    """Why a candidate was rejected. The list is closed; `docs/records.md` explains each."""

    # before it ran
    OUTSIDE_WORKSPACE = "outside_workspace"
    DOES_NOT_APPLY = "does_not_apply"
    BAD_KNOBS = "bad_knobs"
    POLICY = "policy"
    # the gate
    DOES_NOT_COMPILE = "does_not_compile"
    DOES_NOT_LOAD = "does_not_load"
    RAISED = "raised"
    WRONG_RESULT = "wrong_result"
    NOT_FINITE = "not_finite"
    OUTPUT_NOT_WRITTEN = "output_not_written"
    INPUTS_CHANGED = "inputs_changed"
    WROTE_OUT_OF_BOUNDS = "wrote_out_of_bounds"
    MEMORY_ERROR = "memory_error"
    DATA_RACE = "data_race"
    # what its process did
    CRASHED = "crashed"
    EXITED = "exited"
    HUNG = "hung"
    OUT_OF_MEMORY = "out_of_memory"
    LEAKED = "leaked"
    FLOODED_OUTPUT = "flooded_output"
    WROTE_TOO_MUCH = "wrote_too_much"
    STARTED_PROCESS = "started_process"
    BROKE_PROTOCOL = "broke_protocol"
    BROKE_JUDGE = "broke_judge"
    # the duel
    SLOWER = "slower"
    NO_PROVEN_GAIN = "no_proven_gain"
    NOT_PER_CALL = "not_per_call"
    TOO_FAST = "too_fast"
    CLOCKS_DISAGREE = "clocks_disagree"
    LEFT_WORK_RUNNING = "left_work_running"
    GUARDRAIL = "guardrail"
    PROMOTION_FAILED = "promotion_failed"


class Interval(Record):
    """A speedup with the confidence interval of its mean over fresh process pairs."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95
    pairs: int

    def __str__(self) -> str:
        return f"{self.estimate:.3f}x [{self.low:.3f}, {self.high:.3f}]"


class Side(Record):
    """One side of a duel: a materialised workspace and the knob values set in its environment."""

    tree: str
    """Absolute path of the workspace folder."""
    knobs: dict[str, str] = Field(default_factory=dict)
    """Environment variables; empty means the source defaults decide."""


class GateReport(Record):
    """Parity over every problem, distribution and seed."""

    passed: bool
    reason: Reason | None = None
    detail: str = ""
    runs: int = 0
    """Calls whose outputs were compared with the reference."""
    worst: float = 0.0
    """Largest error seen, as a share of the budget; above 1 fails."""
    worst_at: str = ""
    """`problem/distribution` of that error."""


class Environment(Record):
    """What else the machine was doing while a block ran."""

    steal: float = 0.0
    """Share of CPU time taken by the hypervisor, 0 to 1."""
    others: float = 0.0
    """CPUs' worth of work done meanwhile by processes that are not part of the duel."""
    sm_mhz: tuple[int, int] | None = None
    """Clock of a GPU's multiprocessors when the block began and when it ended. This and what follows: None on a CPU,
    and where the driver does not tell; a field that is None is left out of the JSON."""
    memory_mhz: int | None = None
    """Clock of a GPU's memory, the lower of the two."""
    celsius: int | None = None
    """A GPU's temperature when the block ended."""
    watts: int | None = None
    """A GPU's power when the block ended."""
    throttle: tuple[str, ...] | None = None
    """Why a GPU's clocks were held down, at either end of the block, as NVML names it; idleness does not count."""
    tenants: int | None = None
    """Processes that used the GPU and are not part of the duel; None where the driver's pids are not ours."""
    crowded: int | None = None
    """Segments before which the judge's own work on the GPU took longer than usual: it was not alone there."""

    @model_serializer(mode="wrap")
    def _without_unknowns(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Thousands of blocks are kept: what is not known takes no place in them."""
        return {name: value for name, value in handler(self).items() if value is not None}


class Block(Record):
    """One ABBA or BAAB block: four segments of one suite of problems."""

    order: Literal["ABBA", "BAAB"]
    seconds: tuple[float, float, float, float]
    """Seconds per call of each segment in the order run, by the judge's clock, geometric mean over the problems."""
    events: tuple[float, float, float, float] | None = None
    """As `seconds`, by each side's own device events; None on a CPU. Believed only where the judge's clock agrees."""
    whole: tuple[float, float, float, float] | None = None
    """As `seconds`, the untimed lead-in on a GPU included: where work done ahead of its time would show."""
    environment: Environment = Environment()


class Pair(Record):
    """One pair of fresh processes: A is the candidate, B the one it is compared with."""

    stage: Literal["noise", "screen", "decide", "alone", "report", "cumulative", "guardrail"]
    suite: str
    blocks: tuple[Block, ...]
    dropped: int = 0
    """Disturbed blocks, measured again."""
    dropped_for: tuple[str, ...] = ()
    """What disturbed them, of each block everything that did."""
    opponent_alone: tuple[float, ...] = ()
    """B's seconds per call, by segment, after A had ended; in some deciding pairs on a GPU, and where
    those showed B slowed, in the report's."""


class GuardrailReport(Record):
    suite: str
    speedup: Interval
    max_slowdown: float
    passed: bool


class Screening(Record):
    """Gate and first pair. `reason` is None while the candidate is still in the running."""

    gate: GateReport
    reason: Reason | None
    detail: str = ""
    speedup: float | None = None
    """Point estimate from the screening pair; a lead for the search, never a claim."""
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class Confirmation(Record):
    """Decision over fresh pairs, and the speedup measured afresh after it."""

    gate: GateReport
    reason: Reason | None
    detail: str = ""
    alpha: float
    e_value: float = 0.0
    speedup: Interval | None = None
    """Against the incumbent."""
    cumulative: Interval | None = None
    """Against the baseline, measured, never multiplied up."""
    seconds_per_call: float | None = None
    """The candidate's own, over the objective's suite, in the report pairs."""
    guardrails: tuple[GuardrailReport, ...] = ()
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class Comparison(Record):
    """Two trees measured against each other over fresh pairs, without a decision."""

    speedup: Interval
    seconds_per_call: tuple[float, float]
    """(first side's, second side's)."""
    pair_sd: float
    """Standard deviation of one pair's log ratio."""
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class ProblemTime(Record):
    """One problem of the objective's suite, timed alone."""

    problem: str
    seconds_per_call: float
    flops: float
    """Floating-point operations that one call must do, from the contract."""
    bytes: float
    """Bytes that one call must move, read once plus written once, from the contract."""


class Bucket(Record):
    """Where a kernel's own time goes: a function, a kernel launch or a line, as the profiler names it."""

    name: str
    share: float
    """Of the time of one call, 0 to 1, what it calls not included."""
    seconds_per_call: float
    calls: float
    """Times it was entered in one call of the kernel."""


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


class Slip(Record):
    """A result that is wrong on purpose, as a contract's budget takes it."""

    mistake: str
    problem: str = ""
    """On which it was made; empty where it was on several, of which one need show it."""
    share: float
    """Largest error as a share of the budget: up to 1 it is accepted."""


class OracleReport(Record):
    """What a contract accepts though it is wrong."""

    tried: int
    accepted: tuple[Slip, ...] = ()


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


class Provenance(Record):
    """What judged: enough to tell whether two records may be compared."""

    contract: str
    """sha256 over case.yaml, contract.py and the case's other fixed files."""
    benchmarks: str
    """sha256 over the files below benchmarks/."""
    harness: str
    """sha256 over the harness package."""
    device: str
    """The device's name, e.g. the CPU model."""
    device_id: str
    """GPU UUID, or the machine id of a CPU."""
    sandbox: str
    """The rung in force: bubblewrap, landlock, or none (trusted workspace)."""
    software: dict[str, str]
    """Versions: python, kernel, torch, triton, numba, driver where there is one."""
    seed_commitment: str
    """sha256 of the judge's secret seed; the seed itself never leaves the judge."""
