"""A look inside one version of a workspace, outside a run: what `hillclimb profile` asks and shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.evaluate.evaluation import open_local_judge, scratch
from hillclimb.agent.evaluate.versions import read_version
from hillclimb.agent.evaluate.working_case import read_working_files, workspace_of
from hillclimb.agent.git.version import write_version
from hillclimb.agent.llm.briefing.headroom import Headroom, headroom
from hillclimb.agent.llm.briefing.lanes import lane_lines
from hillclimb.agent.machine.timing_device import is_interpreted
from hillclimb.agent.proposers.submission import read_knobs
from hillclimb.agent.screen.counter_text import summary
from hillclimb.agent.screen.durations import describe_seconds
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.knobs import to_environment
from hillclimb.harness.records import LaneReport, Profile, Side, Watch

PROBLEM_COLUMNS = ("problem", "time", "GFLOP/s", "GB/s", "floor", "above it")
BUCKET_COLUMNS = ("share", "a call", "entered", "where")


@dataclass(frozen=True)
class ProfileRequest:
    """What to look at; no candidate stands for the working files."""

    case: Path
    candidate: str | None = None
    knobs: Sequence[str] = ()
    """`NAME=VALUE`, as typed."""
    trust_workspace: bool = False


def profile(subject: ProfileRequest, watch: Watch) -> Profile:
    """Time and profile it by the case's working contract and benchmarks. Nothing is decided or recorded."""
    case = Case(subject.case)
    version = read_version(case, subject.candidate or str(case.workspace))
    files = read_working_files(case)
    if subject.trust_workspace and version != workspace_of(files):
        raise UsageError(
            "--trust-workspace runs the working files only, and --from names others; leave one of them out"
        )
    knobs = to_environment(read_knobs(version, subject.knobs))
    with (
        scratch() as place,
        open_local_judge(case, files, place, trust_workspace=subject.trust_workspace) as judge,
    ):
        side = Side(tree=str(write_version(version, place / "workspace")), knobs=knobs)
        return (
            judge.profile(side, watch)
            if not is_interpreted(case)
            else _untimed(case, judge.lanes(side, watch))
        )


def show(found: Profile) -> str:
    """Problems against the ceilings, then where the time goes, for people."""
    return "\n".join(_lines(found))


def _untimed(case: Case, counted: LaneReport) -> Profile:
    """What there is where the case's kernels are interpreted."""
    detail = f"nothing was timed: {case.name} is for an NVIDIA GPU, and none is here"
    return Profile(problems=(), lanes=counted.problems, detail=detail, seconds=counted.seconds)


def _lines(found: Profile) -> Iterator[str]:
    if found.problems:
        yield from _align([PROBLEM_COLUMNS, *(_problem_row(room) for room in headroom(found))], left=1)
    if found.ceilings:
        yield f"floor: {found.ceilings.flops / 1e9:.4g} GFLOP/s, {found.ceilings.bytes / 1e9:.4g} GB/s"
        yield f"  ({found.ceilings.how})"
    if found.buckets:
        yield ""
        rows = [
            (f"{b.share:.1%}", describe_seconds(b.seconds_per_call), f"{b.calls:.4g}", b.name)
            for b in found.buckets
        ]
        yield from _align([BUCKET_COLUMNS, *rows], left=0)
        yield "own time, as the candidate's own process tells it; worker threads by their mean"
    if found.counters:
        yield ""
        yield from (f"{kernel.kernel}: {summary(kernel)}" for kernel in found.counters)
        yield "as the hardware counted, one launch of each kernel at a time"
    for lanes in found.lanes:
        head, *lines = lane_lines(lanes, str)
        yield from ("", head, *(f"  {line}" for line in lines))
    if found.lanes:
        yield "as counted over one call, interpreted"
    if found.detail:
        yield found.detail
    yield f"took {found.seconds:.1f} s"


def _problem_row(room: Headroom) -> tuple[str, ...]:
    rates = f"{room.flops_per_second / 1e9:.4g}", f"{room.bytes_per_second / 1e9:.4g}"
    floor = f"{describe_seconds(room.floor_seconds)} ({room.bound})" if room.floor_seconds else "-"
    factor = f"{room.factor:.3g}x" if room.factor else "-"
    return room.problem, describe_seconds(room.seconds), *rates, floor, factor


def _align(rows: Sequence[tuple[str, ...]], left: int) -> Iterator[str]:
    """Columns to the right, but for the first `left` and the last."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if i < left or i == len(row) - 1 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
