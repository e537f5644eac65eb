"""What `from hillclimb import ...` gives: read a run, judge a tree, climb with a proposer of one's own."""

from __future__ import annotations

from hillclimb.agent.api.ask_tell import AskTell, Incumbent, climb
from hillclimb.agent.api.judging import judge_tree
from hillclimb.agent.api.runs import CandidateRecord, RunRecord, TimedSegment, Verdict, read_run
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.harness.errors import CaseError, HillclimbError, MachineError, UsageError
from hillclimb.harness.records import Interval, Reason

__all__ = [
    "AskTell",
    "CandidateRecord",
    "CaseError",
    "Edit",
    "HillclimbError",
    "Incumbent",
    "Interval",
    "MachineError",
    "Proposal",
    "Reason",
    "RunRecord",
    "TimedSegment",
    "UsageError",
    "Verdict",
    "climb",
    "judge_tree",
    "read_run",
]
