"""The raw blocks of a measurement, for people: by which clock, and what else the machine was doing."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from hillclimb.agent.screen.durations import describe_seconds
from hillclimb.agent.screen.escaping import StyledLine, escape_unprintable
from hillclimb.harness.records import Environment, Pair
from hillclimb.harness.statistics.readings import event_seconds, log_ratio, quantile_log_ratio, wall_seconds

MAX_LISTED_REASONS = 4
"""Throttle reasons that are named of a stage, the most frequent first."""


def median_wall_clock_log_ratio(pairs: Iterable[Pair]) -> float | None:
    """Median over the pairs by the judge's clock, each read as the judge does; None where nothing else was timed."""
    pairs = [pair for pair in pairs if pair.blocks]
    if not any(block.events for pair in pairs for block in pair.blocks):
        return None
    return statistics.median(quantile_log_ratio(pair, wall_seconds) for pair in pairs)


def describe_blocks(pairs: Iterable[Pair]) -> Iterator[StyledLine]:
    """Every block of every pair; where there are two clocks, the one that decides stands first."""
    for number, pair in enumerate(pairs, start=1):
        dropped = describe_dropped(pair.dropped, pair.dropped_for)
        yield StyledLine(f"pair {number}: {pair.stage}, {escape_unprintable(pair.suite)}, {dropped}", "dim")
        for block in pair.blocks:
            decides, clock = event_seconds(block), wall_seconds(block)
            machine = describe_environment(block.environment)
            yield StyledLine(
                f"  {block.order}{_times(decides)}  {math.exp(log_ratio(block)):>8.4f}x  {machine}"
            )
            if block.events:
                yield StyledLine(
                    f"  clock{_times(clock)[1:]}  {math.exp(log_ratio(block, wall_seconds)):>8.4f}x", "dim"
                )

        if pair.opponent_alone:
            alone = statistics.median(pair.opponent_alone)
            yield StyledLine(
                f"  the other side by itself afterwards: {describe_seconds(alone)} a call", "dim"
            )


def describe_dropped(count: int, causes: Iterable[str]) -> str:
    """`3 dropped (clocks moved 2, steal 1)`."""
    named = ", ".join(f"{escape_unprintable(cause)} {seen}" for cause, seen in Counter(causes).most_common())
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
    facts += [f"held down by {', '.join(map(escape_unprintable, seen.throttle))}"] if seen.throttle else []
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
        f"{escape_unprintable(reason)} in {count} of {len(seen)} blocks"
        for reason, count in held.most_common(MAX_LISTED_REASONS)
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
