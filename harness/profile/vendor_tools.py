"""The vendor's tools over one side of a case on a GPU: compute-sanitizer before a win is kept, ncu for a profile."""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.case.workspace_names import UNREAD_FOLDERS
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.errors import SandboxError
from hillclimb.harness.profile.counters import CounterReader, ProblemCounters, find_ncu
from hillclimb.harness.profile.sanitize import Sanitizer, find_sanitizer
from hillclimb.harness.profile.tool_run import MAX_PROBLEM_BYTES, ToolSandbox
from hillclimb.harness.records import Side, Watch
from hillclimb.harness.sandbox.rungs.choose import Confinement

MEMORY_BYTES = 64 << 30
"""Private memory of a process under a tool, which shadows all of the kernel's."""

SCRATCH_BYTES = 1 << 30


def sanitize(duels: DuelFactory, side: Side, watch: Watch) -> str:
    """Run the case's sanitizers over a side; what there is to say of it, if anything.

    Raises CandidateFault where one of them finds the kernel at fault.
    """
    if duels.device.kind != "cuda":
        return ""
    if is_large := _large_parameters(duels):
        return f"compute-sanitizer was not run: {is_large}"
    sources = [duels.source(name, duels.contract.distributions[0]) for name in duels.gated_problems()]
    notes = []
    try:
        for found in Sanitizer(find_sanitizer(), _sandbox(duels, side)).check(
            sources, duels.case.settings.cuda.sanitizers, watch
        ):
            found.require_clean()
            notes.append(found.note())
    except SandboxError as error:
        notes.append(f"compute-sanitizer was not run: {error}")
    return "; ".join(filter(None, notes))


def count_hardware(duels: DuelFactory, side: Side) -> ProblemCounters:
    """What the hardware counts of the first problem of the objective's suite."""
    suite = duels.case.suites[duels.case.settings.objective.suite]
    source = duels.source(suite.problems[0], suite.distribution)
    if duels.device.kind != "cuda":
        return ProblemCounters(source.problem)
    if is_large := _large_parameters(duels):
        return ProblemCounters(source.problem, failure=f"ncu was not run: {is_large}")
    try:
        return CounterReader(find_ncu(), _sandbox(duels, side)).read(source)
    except SandboxError as error:
        return ProblemCounters(source.problem, failure=f"ncu was not run: {error}")


def _large_parameters(duels: DuelFactory) -> str:
    """Why a tool is not given the parameters; empty where it is, or where there are none."""
    parameters = duels.launcher.parameters
    if parameters is None or parameters.nbytes <= MAX_PROBLEM_BYTES:
        return ""
    return f"the parameters are {parameters.nbytes >> 20} MiB, and a tool takes {MAX_PROBLEM_BYTES >> 20}"


def _sandbox(duels: DuelFactory, side: Side) -> ToolSandbox:
    confinement = Confinement(
        Path(side.tree),
        MEMORY_BYTES,
        SCRATCH_BYTES,
        environment={**thread_variables(), **side.knobs, **duels.device.variables()},
        hidden=UNREAD_FOLDERS,
        devices=duels.device.nodes(),
    )
    parameters = duels.launcher.parameters
    return ToolSandbox(
        duels.launcher.rung,
        confinement,
        duels.case.settings.entry,
        duels.device.torch_device,
        parameters.tensors if parameters else {},
    )
