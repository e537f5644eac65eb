"""What judge and controller say to each other, and what the ledger keeps: frozen, typed, JSON.

Units: seconds for time, ratios for speedups (incumbent's time over candidate's; above 1 is faster).
Unknown fields are errors, so a record written by another version is noticed rather than half read."""

from __future__ import annotations

from hillclimb.harness.records.bucket import Bucket
from hillclimb.harness.records.profile import (
    Ceilings,
    KernelCounters,
    KernelRuns,
    LaneCount,
    LaneReport,
    Lanes,
    Profile,
    TripCount,
)
from hillclimb.harness.records.provenance import Progress, Provenance, Watch
from hillclimb.harness.records.record import SCHEMA, Record
from hillclimb.harness.records.timing import (
    Block,
    Comparison,
    Confirmation,
    Environment,
    Estimate,
    GuardrailReport,
    Interval,
    MetricReport,
    Pair,
    ProblemTime,
    Screening,
    SegmentMetric,
    Stage,
    last_estimate,
)
from hillclimb.harness.records.verdict import GateReport, OracleReport, Reason, Side, SurvivingMutant

__all__ = [
    "SCHEMA",
    "Block",
    "Bucket",
    "Ceilings",
    "Comparison",
    "Confirmation",
    "Environment",
    "Estimate",
    "GateReport",
    "GuardrailReport",
    "Interval",
    "KernelCounters",
    "KernelRuns",
    "LaneCount",
    "LaneReport",
    "Lanes",
    "MetricReport",
    "OracleReport",
    "Pair",
    "ProblemTime",
    "Profile",
    "Progress",
    "Provenance",
    "Reason",
    "Record",
    "Screening",
    "SegmentMetric",
    "Side",
    "Stage",
    "SurvivingMutant",
    "TripCount",
    "Watch",
    "last_estimate",
]
