"""What `from hillclimb import ...` gives: read a run, judge a tree, climb with a proposer of one's own."""

from __future__ import annotations

from hillclimb.agent.api.ask_tell import AskTell, Incumbent, climb
from hillclimb.agent.api.judging import judge_tree
from hillclimb.agent.api.runs import CandidateRecord, RunRecord, TimedSegment, Verdict, read_run
from hillclimb.agent.evaluate.evaluation import EvaluationResult
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.screen.events import Event
from hillclimb.harness.errors import CaseError, HillclimbError, MachineError, UsageError
from hillclimb.harness.records import (
    Confirmation,
    Estimate,
    GateReport,
    Interval,
    Progress,
    Provenance,
    Reason,
    Screening,
)

__all__ = [
    "AskTell",
    "CandidateRecord",
    "CaseError",
    "Confirmation",
    "Edit",
    "Estimate",
    "EvaluationResult",
    "Event",
    "GateReport",
    "HillclimbError",
    "Incumbent",
    "Interval",
    "MachineError",
    "Progress",
    "Proposal",
    "Provenance",
    "Reason",
    "RunRecord",
    "Screening",
    "TimedSegment",
    "UsageError",
    "Verdict",
    "climb",
    "judge_tree",
    "read_run",
]
