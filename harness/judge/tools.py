"""The vendor's tools over one side of a case on a GPU: compute-sanitizer before a win is kept, ncu for a profile."""

from __future__ import annotations

from pathlib import Path

from harness.candidate.process import thread_variables
from harness.errors import SandboxError
from harness.judge.bench import Bench
from harness.judge.counters import Counted, CounterReader, find_ncu
from harness.judge.protocol import Watch
from harness.judge.rehearsal import Stage
from harness.judge.sanitize import Sanitizer, find_sanitizer
from harness.records import Side
from harness.sandbox.rungs import Confinement

MEMORY_BYTES = 64 << 30
"""Private memory of a process under a tool, which shadows all of the kernel's."""

SCRATCH_BYTES = 1 << 30


def sanitize(bench: Bench, side: Side, watch: Watch) -> str:
    """Run the case's sanitizers over a side; what there is to say of it, if anything.

    Raises CandidateFault where one of them finds the kernel at fault.
    """
    if bench.device.kind != "cuda":
        return ""
    sources = [bench.source(name, bench.contract.distributions[0]) for name in bench.gated_problems()]
    notes = []
    try:
        for found in Sanitizer(find_sanitizer(), _stage(bench, side)).check(
            sources, bench.case.settings.cuda.sanitizers, watch
        ):
            found.demand_clean()
            notes.append(found.note())
    except SandboxError as error:
        notes.append(f"compute-sanitizer was not run: {error}")
    return "; ".join(filter(None, notes))


def count(bench: Bench, side: Side) -> Counted:
    """What the hardware counts of the first problem of the objective's suite."""
    suite = bench.case.suites[bench.case.settings.objective.suite]
    source = bench.source(suite.problems[0], suite.distribution)
    if bench.device.kind != "cuda":
        return Counted(source.problem)
    try:
        return CounterReader(find_ncu(), _stage(bench, side)).read(source)
    except SandboxError as error:
        return Counted(source.problem, trouble=f"ncu was not run: {error}")


def _stage(bench: Bench, side: Side) -> Stage:
    confinement = Confinement(
        Path(side.tree),
        MEMORY_BYTES,
        SCRATCH_BYTES,
        environment={**thread_variables(), **side.knobs, **bench.device.variables()},
        devices=bench.device.nodes(),
    )
    return Stage(bench.stable.rung, confinement, bench.case.settings.entry, bench.device.torch_device)
