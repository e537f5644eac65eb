"""Every exception the lab raises on purpose, in one tree.

HillclimbError
├── UsageError            the caller asked for something that cannot be done; exit status 2
│   └── CaseError         a file of a case is wrong: file, key, value seen, remedy
├── MachineError          the machine failed, not the candidate; never a verdict
│   ├── SandboxError      no border strong enough could be raised
│   ├── UnreapedError     a process outlives SIGKILL
│   ├── JudgeError        the judge process died or broke its protocol
│   └── StorageError      the disk refused a write, and may take it later
│       └── UnwritableError   it refuses until a person changes something
├── CandidateFault        a candidate's evaluation ends, with a reason out of the closed list
└── Stop                  the climb ends here, with a reason a person can read
    ├── BudgetSpent
    ├── Plateau
    ├── TargetReached     fast enough
    └── Interrupted
        └── Paused        no more was asked for; the run stays open
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hillclimb.harness.records import Reason


class HillclimbError(Exception):
    """Root of the tree."""


class UsageError(HillclimbError):
    """The caller asked for something that cannot be done; the message says what to do instead."""


class CaseError(UsageError):
    """A file of a case is wrong."""

    def __init__(self, file: Path | str, key: str, problem: str, remedy: str) -> None:
        where = f"{file}: {key}" if key else f"{file}"
        super().__init__(f"{where}: {problem}; {remedy}")
        self.file, self.key, self.problem, self.remedy = str(file), key, problem, remedy


class OverrunError(CaseError):
    """A contract's method takes longer than it may."""


class MachineError(HillclimbError):
    """The machine failed; nothing is held against the candidate."""


class IncumbentFault(MachineError):
    """The incumbent failed in a duel, having passed before: by its own fault, or the machine's."""


class SandboxError(MachineError):
    """No sandbox rung works here; the message names what was tried and what got out."""


class UnreapedError(MachineError):
    """A process hangs in the kernel, whatever is done to it."""

    def __init__(self, message: str, pid: int = 0) -> None:
        super().__init__(message)
        self.pid = pid


class JudgeError(MachineError):
    """The judge process died or answered something that is not of its protocol."""


class StorageError(MachineError):
    """The disk refused an operation, and may take it later: it is full, a quota is used up, or it fails."""


class UnwritableError(StorageError):
    """A path can never be written as it is: no permission, read-only, or something else is there."""


class CandidateFault(HillclimbError):
    """A candidate's evaluation ends here: what it did, or what it did not prove."""

    def __init__(self, reason: Reason, detail: str) -> None:
        detail = detail.encode(errors="replace").decode()  # a lone surrogate could not be recorded
        super().__init__(f"{reason.value}: {detail}")
        self.reason, self.detail = reason, detail


class Stop(HillclimbError):
    """The climb ends; everything recorded so far is safe."""


class BudgetSpent(Stop):
    """A budget of the run (seconds, candidates) is used up."""


class Plateau(Stop):
    """Patience ran out: too many candidates in a row without a win, or nothing left to try."""


class TargetReached(Stop):
    """The run is proven to be as fast as was asked for."""


class Interrupted(Stop):
    """The user asked to stop."""


class Paused(Interrupted):
    """As much was judged as the caller asked for; the run stays open for a later climb."""
