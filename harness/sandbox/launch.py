"""Confines itself as its plan says, then becomes the candidate.

`python -m hillclimb.harness.sandbox.launch STATUS PLAN`.

STATUS is the number of a pipe that closes silently when the candidate starts, or says why it could not. PLAN is
a JSON `Plan`. Standard library only, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from hillclimb.harness.channel.process_filter import load_filter
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.sandbox.kernel import landlock, privileges, seccomp


@dataclass(frozen=True)
class ConfinementPlan:
    """What the launcher does to itself, in this order of fields, and what it then runs."""

    limits: Sequence[tuple[int, int]]
    """(RLIMIT number, bytes or count)."""
    uid: int | None
    """User to become; None stays."""
    capabilities: Sequence[int]
    """Kept when becoming that user."""
    parent: int
    """The judge; the candidate ends with it."""
    read: Sequence[str]
    write: Sequence[str]
    landlock: int
    """The version to restrict by; 0 leaves the file tree open."""
    seccomp: seccomp.SandboxKind | None
    environment: Mapping[str, str]
    argv: Sequence[str]
    drops_capabilities: bool = False
    """Whether to give up every capability, as bubblewrap does for what it starts itself."""
    has_listener: bool = False
    """Whether somebody will answer for every new process and program."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Read the plan, follow it, report what fails."""
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    try:
        confine_and_exec(ConfinementPlan(**json.loads(sys.argv[2])))
    except (OSError, ValueError, HillclimbError) as error:
        os.write(status, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def confine_and_exec(plan: ConfinementPlan) -> None:
    """Confine this process and exec; returns only by raising."""
    confine(plan)
    os.execve(plan.argv[0], list(plan.argv), dict(plan.environment))


def confine(plan: ConfinementPlan) -> int | None:
    """Confine this process for good; OSError or HillclimbError where that fails.

    Where the plan asks about processes: the listener that answers (seccomp.ask_about_processes), if there is one.
    """
    for number, value in plan.limits:
        resource.setrlimit(number, (value, value))
    if plan.uid is not None:
        privileges.become_user(plan.uid, plan.capabilities)
    if plan.drops_capabilities:
        privileges.drop_capabilities()
    seccomp.make_dumpable()
    die_with_parent(plan.parent)
    if plan.landlock:
        landlock.restrict(plan.read, plan.write, plan.landlock)
    if plan.seccomp is None:
        return None
    if plan.has_listener:
        return seccomp.load_notifying_filter(plan.seccomp)
    load_filter(seccomp.stage_one_program(plan.seccomp))
    return None


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL at the parent's death. Changing users clears the wish, so it comes after that."""
    ctypes.CDLL(None).prctl(seccomp.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError("the judge died first")


if __name__ == "__main__":
    main()
