"""How far each problem is from what the device was measured to do: achieved rates, the floor, the factor left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hillclimb.agent.llm.briefing.quoting import quoted
from hillclimb.agent.screen.counter_text import summary
from hillclimb.agent.screen.durations import describe_seconds
from hillclimb.harness.records import Bucket, Ceilings, KernelCounters, ProblemTime, Profile


@dataclass(frozen=True)
class Headroom:
    """One problem; `floor` and what follows from it are None where no ceilings were measured."""

    problem: str
    seconds: float
    flops_per_second: float
    bytes_per_second: float
    floor_seconds: float | None = None
    """Seconds that the scarcer of the two ceilings allows a call."""
    bound: str = ""
    """Which of them: arithmetic or memory."""

    @property
    def factor(self) -> float | None:
        """How many times faster the floor is; below 1 the ceiling was measured too low."""
        return self.seconds / self.floor_seconds if self.floor_seconds else None


def headroom(profile: Profile) -> tuple[Headroom, ...]:
    """Every problem of the objective's suite, in the profile's order."""
    return tuple(_compute(problem, profile.ceilings) for problem in profile.problems)


def headroom_table(rooms: Iterable[Headroom]) -> str:
    """The same as a Markdown table."""
    rows = [_row(room) for room in rooms]
    head = "| problem | time a call | GFLOP/s | GB/s | floor | factor left |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def work_table(profile: Profile) -> str:
    """What one call of each problem must do: the part of a profile that no change to the kernel changes."""
    head = "| problem | FLOPs a call | bytes a call | FLOPs a byte |\n|---|---|---|---|\n"
    return head + "\n".join(
        f"| {item.problem} | {item.flops:,.0f} | {item.bytes:,.0f} | {_ratio(item.flops, item.bytes)} |"
        for item in profile.problems
    )


def bucket_line(bucket: Bucket) -> str:
    """One line of where the time goes; its name comes from the candidate's process, so it is quoted."""
    calls = f"{bucket.calls:,.4g} times" if bucket.calls != 1 else "once"
    time = describe_seconds(bucket.seconds_per_call)
    return f"{bucket.share:.1%} {quoted(bucket.name)}: {time} a call, entered {calls}"


def counter_line(kernel: KernelCounters) -> str:
    """One line of what the hardware counted; the kernel's name comes from the candidate, so it is quoted."""
    return f"{quoted(kernel.kernel)}: {summary(kernel)}"


def _compute(item: ProblemTime, ceilings: Ceilings | None) -> Headroom:
    seconds = item.seconds_per_call
    rates = (item.flops / seconds, item.bytes / seconds) if seconds > 0 else (0.0, 0.0)
    if ceilings is None or ceilings.flops <= 0 or ceilings.bytes <= 0:
        return Headroom(item.problem, seconds, *rates)
    arithmetic, memory = item.flops / ceilings.flops, item.bytes / ceilings.bytes
    bound = "arithmetic" if arithmetic >= memory else "memory"
    return Headroom(item.problem, seconds, *rates, max(arithmetic, memory), bound)


def _row(room: Headroom) -> str:
    rates = f"{room.flops_per_second / 1e9:.4g} | {room.bytes_per_second / 1e9:.4g}"
    floor = f"{describe_seconds(room.floor_seconds)} ({room.bound})" if room.floor_seconds else "unknown"
    factor = f"{room.factor:.3g}x" if room.factor else "unknown"
    return f"| {room.problem} | {describe_seconds(room.seconds)} | {rates} | {floor} | {factor} |"


def _ratio(flops: float, size: float) -> str:
    return f"{flops / size:.3g}" if size > 0 else "-"
