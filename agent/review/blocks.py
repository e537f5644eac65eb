"""The raw blocks of a measurement, for people: by which clock, and what else the machine was doing."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from agent.durations import describe_seconds
from agent.lines import Line, neutralise
from harness.readings import calm_log_ratio, log_ratio, seen, told
from harness.records import Environment, Pair

FEW = 4
"""Throttle reasons that are named of a stage, the most frequent first."""


def by_the_clock(pairs: Iterable[Pair]) -> float | None:
    """Median over the pairs by the judge's clock, each read as the judge does; None where nothing else was timed."""
    pairs = [pair for pair in pairs if pair.blocks]
    if not any(block.events for pair in pairs for block in pair.blocks):
        return None
    return statistics.median(calm_log_ratio(pair, seen) for pair in pairs)


def describe_blocks(pairs: Iterable[Pair]) -> Iterator[Line]:
    """Every block of every pair; where there are two clocks, the one that decides stands first."""
    for number, pair in enumerate(pairs, start=1):
        dropped = describe_dropped(pair.dropped, pair.dropped_for)
        yield Line(f"pair {number}: {pair.stage}, {neutralise(pair.suite)}, {dropped}", "dim")
        for block in pair.blocks:
            decides, clock = told(block), seen(block)
            machine = describe_environment(block.environment)
            yield Line(f"  {block.order}{_times(decides)}  {math.exp(log_ratio(block)):>8.4f}x  {machine}")
            if block.events:
                yield Line(f"  clock{_times(clock)[1:]}  {math.exp(log_ratio(block, seen)):>8.4f}x", "dim")

        if pair.opponent_alone:
            alone = statistics.median(pair.opponent_alone)
            yield Line(f"  the other side by itself afterwards: {describe_seconds(alone)} a call", "dim")


def describe_dropped(count: int, causes: Iterable[str]) -> str:
    """`3 dropped (clocks moved 2, steal 1)`."""
    named = ", ".join(f"{neutralise(cause)} {seen}" for cause, seen in Counter(causes).most_common())
    return f"{count} dropped ({named})" if named else f"{count} dropped"


def _times(seconds: Iterable[float]) -> str:
    return "".join(f"{describe_seconds(taken):>11}" for taken in seconds)


def describe_environment(seen: Environment) -> str:
    """One block's: what a GPU does not tell is left out."""
    facts = [f"steal {seen.steal:.1%}", f"others {seen.others:.2f}"]
    if seen.sm_mhz:
        facts.append(f"SM {_span(seen.sm_mhz)} MHz")
    facts += [f"{seen.celsius} C"] if seen.celsius is not None else []
    facts += [f"{seen.watts} W"] if seen.watts is not None else []
    facts += [f"held down by {', '.join(map(neutralise, seen.throttle))}"] if seen.throttle else []
    facts += [f"{seen.tenants} others on the GPU"] if seen.tenants else []
    facts += [f"{seen.crowded} segments begun late"] if seen.crowded else []
    return "  ".join(facts)


def describe_machine(pairs: Iterable[Pair]) -> str:
    """What a GPU was doing in all the blocks together; empty where none was told of."""
    seen = [block.environment for pair in pairs for block in pair.blocks]
    facts = [
        *_range(seen, "SM {} MHz", lambda one: one.sm_mhz or ()),
        *_range(seen, "{} C", lambda one: () if one.celsius is None else (one.celsius,)),
        *_range(seen, "{} W", lambda one: () if one.watts is None else (one.watts,)),
    ]
    held = Counter(reason for one in seen for reason in one.throttle or ())
    facts += [
        f"{neutralise(reason)} in {count} of {len(seen)} blocks" for reason, count in held.most_common(FEW)
    ]
    return ", ".join(facts)


def _range(
    environments: Iterable[Environment], form: str, of: Callable[[Environment], Sequence[int]]
) -> Iterator[str]:
    found = [value for one in environments for value in of(one)]
    if found:
        yield form.format(_span(found))


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}-{high}"
