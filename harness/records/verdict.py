"""What a gate and a contract's test say of a candidate, and why candidates are rejected."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from hillclimb.harness.records.bucket import Bucket
from hillclimb.harness.records.record import Record


class Reason(StrEnum):
    """Why a candidate was rejected. The list is closed; `docs/reference/records.md` explains each."""

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
    TOKEN_COUNT = "token_count"
    BROKE_JUDGE = "broke_judge"
    # the duel
    SLOWER = "slower"
    NO_PROVEN_GAIN = "no_proven_gain"
    NOT_PER_CALL = "not_per_call"
    TOO_FAST = "too_fast"
    CLOCKS_DISAGREE = "clocks_disagree"
    LEFT_WORK_RUNNING = "left_work_running"
    GUARDRAIL = "guardrail"
    NOT_ENGAGED = "not_engaged"
    PROMOTION_FAILED = "promotion_failed"


class Side(Record):
    """One side of a duel: a materialised workspace and the knob values set in its environment."""

    tree: str
    """Absolute path of the workspace folder."""
    knobs: dict[str, str] = Field(default_factory=dict)
    """Environment variables; empty means the source defaults decide."""
    is_yardstick: bool = False
    """Whether it is a library's operator, by which a kernel is measured, and not a workspace: its source is not read,
    and it may call finished operators. Never true of a candidate."""


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
    engaged: tuple[Bucket, ...] = ()
    """Of a server: the kernels that its manifest claims to run, as they were seen to."""


class SurvivingMutant(Record):
    """A result that is wrong on purpose, as a contract's budget takes it."""

    mistake: str
    """Its name, by which `Contract.excused` can excuse it."""
    problem: str = ""
    """Where it came nearest to being rejected; empty of one that is about all problems."""
    distribution: str = ""
    share: float
    """Largest error as a share of the budget: up to 1 it is accepted."""
    excuse: str = ""
    """Why the contract is right to accept it, where a person has said so."""


class OracleReport(Record):
    """What a contract accepts though it is wrong."""

    tried: int
    accepted: tuple[SurvivingMutant, ...] = ()
    """Those that nobody has excused."""
    excused: tuple[SurvivingMutant, ...] = ()
    is_varied: bool = True
    """Whether sizes that are not listed are tried, too."""
    has_empty: bool = True
    """Whether a size of 0 is tried: only one that a problem lists is."""
    unmixed: str = ""
    """Why inputs are not mixed; empty where they are."""
    without_domain: tuple[str, ...] = ()
    """Inputs of which the contract does not say how large they may be."""
