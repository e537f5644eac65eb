"""The wall that does not read, on a GPU: what really ran there is listed, and has to be the workspace's own.

One more process of a would-be win is run under the profiler (hillclimb.harness.candidate.gpu_profiler), a call on each
timed problem. A kernel is the workspace's own where the workspace defines a function of that name; fills and copies
are memory. Everything else is a framework's or a vendor's.

Not covered: what a process does otherwise while it is profiled, and a finished kernel loaded under a name of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.profile.rows import parse_rows, printable
from hillclimb.harness.records import Progress, Reason, Side, Watch

CALLS = 2
"""Calls of each problem that are listed."""

SOURCES = (".py", ".cu", ".cuh", ".h", ".ptx")

DEFINED = re.compile(
    r"\bdef\s+(\w+)|__global__[^;{}()]*(?:\([^()]*\)[^;{}()]*)*?\b(\w+)\s*\(|\.entry\s+([\w$]+)", re.ASCII
)
"""Functions that may be kernels: of Python (Triton, CuTe), of CUDA C++, of PTX."""

MEMORY = re.compile(
    r"^\[?(CUDA )?mem(cpy|set)\b|\bFillFunctor<|^gaps \(nothing runs on the device\)$", re.IGNORECASE
)
"""Copies and fills, by the driver or as torch.zeros makes them, and the time in which nothing ran."""

CUTE = "kernel_cutlass_"
"""What CuTe DSL puts before the name of a function that it compiles."""


def require_own_kernels(duels: DuelFactory, candidate: Side, incumbent: Side, watch: Watch) -> str:
    """What there is to say of the list, if anything.

    Raises CandidateFault where a kernel ran that the workspace does not define, though `policy.library_calls` is false,
    or where the candidate cannot be listed and its incumbent can.
    """
    if duels.device.kind != "cuda" or duels.case.settings.policy.library_calls:
        return ""
    watch(Progress(stage="list"))
    try:
        names = launched_kernels(duels, candidate)
    except CandidateFault as fault:
        return _require_unlistable(duels, incumbent, fault)
    foreign = sorted(set(foreign_kernels(names, defined_functions(Path(candidate.tree)))))
    if foreign:
        told = printable("; ".join(foreign[:3]))
        detail = (
            f"{told} ran on the GPU, which no file of the workspace defines; policy.library_calls is false"
        )
        raise CandidateFault(Reason.POLICY, detail)
    return ""


def _require_unlistable(duels: DuelFactory, incumbent: Side, fault: CandidateFault) -> str:
    """Raises `fault` unless the incumbent cannot be listed here either."""
    try:
        launched_kernels(duels, incumbent)
    except CandidateFault as other:
        return printable(f"what ran on the GPU was not listed: {other.detail[-200:]}")
    raise fault


def launched_kernels(duels: DuelFactory, side: Side) -> list[str]:
    """Names of all kernels, copies and fills of its calls. Raises CandidateFault where it fails, or none is seen."""
    names: list[str] = []
    with duels.launcher.launch(side, watched=True) as process:
        process.await_loaded()
        for problem in duels.timed_problems():
            names += _list_problem(duels, process, problem)
    return names


def _list_problem(duels: DuelFactory, process: CandidateProcess, problem: str) -> list[str]:
    source = duels.source(problem, duels.contract.distributions[0])
    with source.arena(CALLS) as arena:
        source.refresh(arena, range(CALLS))
        process.begin_compile(arena, 0)
        process.finish_compile()
        source.refresh(arena, range(CALLS))
        rows = parse_rows(process.profile(arena, 0, CALLS))
        process.unmap(arena)
    return [row.name for row in rows]


def defined_functions(workspace: Path) -> frozenset[str]:
    """Names of functions that the files of a workspace define."""
    texts = (path.read_text(errors="replace") for path in workspace.rglob("*") if path.suffix in SOURCES)
    return frozenset(name for text in texts for found in DEFINED.findall(text) for name in found if name)


def foreign_kernels(names: Iterable[str], own: frozenset[str]) -> Iterator[str]:
    """Those that are neither memory's nor the workspace's."""
    return (name for name in names if not MEMORY.search(name) and not _is_own(name, own))


def _is_own(kernel: str, own: frozenset[str]) -> bool:
    """By the whole name of a plain or mangled function; of one in a namespace, no part may be foreign."""
    if kernel.startswith(CUTE):
        return any(kernel.removeprefix(CUTE).startswith(name) for name in own if len(name) > 1)
    if mangled := re.match(r"_Z(\d+)(\w+)", kernel):
        return mangled[2][: int(mangled[1])] in own
    return kernel.removeprefix("void ").partition("<")[0].partition("(")[0].strip() in own
