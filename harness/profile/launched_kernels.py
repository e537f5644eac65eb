"""The wall that does not read, on a GPU: what really ran there is listed.

One more process of a would-be win is run under the profiler (hillclimb.harness.candidate.gpu_profiler), a call on each
timed problem. Where no library may be called, what ran has to be the workspace's own; and what the workspace's manifest
says that runs has to be among it.

Not covered: what a process does otherwise while it is profiled, and a finished kernel loaded under a name of one's own.
"""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.channel.profile_limits import REST
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.engagement.engagement import chosen_ops, require_engaged
from hillclimb.harness.engagement.kernel_names import defined_names, foreign_kernels
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.profile.rows import parse_rows, printable
from hillclimb.harness.records import Bucket, Progress, Reason, Side, Watch

CALLS = 2
"""Calls of each problem that are listed."""


def require_listed_kernels(duels: DuelFactory, candidate: Side, incumbent: Side, watch: Watch) -> str:
    """What there is to say of the list, if anything.

    Raises CandidateFault where a kernel ran that the workspace does not define, though `policy.library_calls` is false,
    where one did not run that its manifest claims, or where the candidate cannot be listed, and its incumbent can or is
    a yardstick.
    """
    is_walled = not duels.case.settings.policy.library_calls
    if duels.device.kind != "cuda" or not (is_walled or chosen_ops(candidate)):
        return ""
    watch(Progress(stage="list"))
    try:
        rows = launched_kernels(duels, candidate)
    except CandidateFault as fault:
        return _require_unlistable(duels, incumbent, fault)
    if is_walled:
        _require_own(rows, candidate)
    if any(row.name == REST for row in rows):
        return "more kernels ran than are listed, so those of the manifest were not looked for"
    engaged = require_engaged(candidate, rows)
    return f"seen to run: {', '.join(row.name for row in engaged)}" if engaged else ""


def _require_own(rows: list[Bucket], candidate: Side) -> None:
    names = [row.name for row in rows]
    foreign = sorted(set(foreign_kernels(names, defined_names(Path(candidate.tree)))))
    if foreign:
        told = printable("; ".join(foreign[:3]))
        detail = (
            f"{told} ran on the GPU, which no file of the workspace defines, or which libraries call so; "
            "policy.library_calls is false"
        )
        raise CandidateFault(Reason.POLICY, detail)


def _require_unlistable(duels: DuelFactory, incumbent: Side, fault: CandidateFault) -> str:
    """Raises `fault` unless the incumbent cannot be listed here either."""
    if incumbent.is_yardstick:
        raise fault
    try:
        launched_kernels(duels, incumbent)
    except CandidateFault as other:
        return printable(f"what ran on the GPU was not listed: {other.detail[-200:]}")
    raise fault


def launched_kernels(duels: DuelFactory, side: Side) -> list[Bucket]:
    """Rows of all kernels, copies and fills of its calls. Raises CandidateFault where it fails, or none is seen."""
    rows: list[Bucket] = []
    with duels.launcher.launch(side, watched=True) as process:
        process.await_loaded()
        process.take_parameters()
        for problem in duels.timed_problems():
            rows += _list_problem(duels, process, problem)
    return rows


def _list_problem(duels: DuelFactory, process: CandidateProcess, problem: str) -> list[Bucket]:
    source = duels.source(problem, duels.contract.distributions[0])
    with source.arena(CALLS) as arena:
        source.refresh(arena, range(CALLS))
        process.begin_compile(arena, 0)
        process.finish_compile()
        source.refresh(arena, range(CALLS))
        rows = parse_rows(process.profile(arena, 0, CALLS))
        process.unmap(arena)
    return rows
