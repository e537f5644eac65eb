#!/usr/bin/env python3
"""How should a pair be read by the judge's own clocks?  From the raw segments of identical sides that gpu_noise kept.

A pair's value by each clock and each way to read it: the median or the mean of its blocks' log ratios, or the log ratio
of a quantile of each side's segments (what disturbs a segment makes it longer, never shorter). Told for each: the
standard deviation of one pair's value in percent, over every run of so many consecutive blocks, and the gain that ten
such pairs see with a chance of nine in ten where a look may be wrong in one of thirty. And for each of the judge's
readings that must vouch for a gain: how many of so many resampled duels with a true 1 % it refuses, knowing the gaps of
six other pairs, and the lie that passes half the time.

    scripts/experiments/clock_noise.py noise.raw.json.gz --blocks 2 3
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.judge.clocks import VOUCHES, Wide, overhead_of
from harness.judge.evidence import agreement, diluted, student_quantile
from harness.readings import Clock, calm_log_ratio, log_ratio, middle_log_ratio, seen, seen_with_lead, told
from harness.records import Block, Pair

CLOCKS: dict[str, Clock] = {"events": told, "the judge's clock": seen, "with the lead-in": seen_with_lead}

READINGS: dict[str, Callable[[Pair, Clock], float]] = {
    "median": middle_log_ratio,
    "mean": lambda pair, clock: statistics.fmean(log_ratio(block, clock) for block in pair.blocks),
    "least": lambda pair, clock: calm_log_ratio(pair, clock, 0.0),
    "quarter": calm_log_ratio,
}

PAIRS, CHANCE, POWER = 10, 0.1 / 3, 0.9

GAIN, KNOWN, FOUGHT = 0.01, 6, (5, 8)
"""A duel's true log ratio, the honest pairs known before, and how many of its own are looked at."""


def main() -> None:
    options = _parse()
    for file in options.files:
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            kept = json.loads(line)
            pairs = [pair_of(pair) for pair in kept["pairs"]]
            told_of = [*rows(pairs, options.blocks), *refusals(pairs, options.blocks, options.duels)]
            for row in told_of:
                print(f"{kept['kind']:8} {kept['variant']:42} {row}")


def rows(pairs: Sequence[Pair], counts: Sequence[int]) -> Iterator[str]:
    for clock_name, clock in CLOCKS.items():
        for count in counts:
            for name, read in READINGS.items():
                spread = deviation([[read(pair, clock) for pair in parts(whole, count)] for whole in pairs])
                sees = f"sees {100 * visible(spread):6.3f} %"
                yield f"{clock_name:18} {count} blocks  {name:8} {100 * spread:7.3f} %   {sees}"


def refusals(pairs: Sequence[Pair], counts: Sequence[int], duels: int) -> Iterator[str]:
    rng = random.Random(1)
    for wide in VOUCHES:
        for count in counts:
            for fought in (number for number in FOUGHT if KNOWN + number <= len(pairs)):
                found = [duel(rng, wide, pairs, count, fought) for _ in range(duels)]
                refused = sum(gap > room for gap, room in found)
                lie = statistics.median(room - gap for gap, room in found)
                yield (
                    f"{wide.name:50} {count} blocks, {fought} pairs   refuses {refused} of {duels}, "
                    f"a lie of {100 * lie:.2f} % passes half the time"
                )


def duel(
    rng: random.Random, wide: Wide, pairs: Sequence[Pair], count: int, fought: int
) -> tuple[float, float]:
    """(gap, room) of one reading, over pairs of which each is so many consecutive blocks of a recorded one."""
    drawn = [rng.choice(parts(pair, count)) for pair in rng.sample(pairs, KNOWN + fought)]
    narrow = [middle_log_ratio(pair) for pair in drawn]
    values = [wide.read(pair, wide.clock) for pair in drawn]
    overhead = overhead_of(drawn, wide.clock)
    found = agreement(
        [value + GAIN for value in narrow[KNOWN:]],
        [value + diluted(GAIN, overhead) for value in values[KNOWN:]],
        [a - b for a, b in zip(narrow[:KNOWN], values[:KNOWN], strict=True)],
        overhead,
        forgiving=wide.forgives,
    )
    return found.gap, found.room


def pair_of(kept: Sequence[Any]) -> Pair:
    """A pair as gpu_noise keeps it."""
    blocks = (
        Block(order=order, events=tuple(events), seconds=tuple(seconds), whole=tuple(whole))
        for order, events, seconds, whole in kept
    )
    return Pair(stage="noise", suite="main", blocks=tuple(blocks))


def parts(pair: Pair, count: int) -> list[Pair]:
    """Every run of so many consecutive blocks."""
    starts = range(len(pair.blocks) - count + 1)
    return [pair.model_copy(update={"blocks": pair.blocks[start : start + count]}) for start in starts]


def deviation(values: Sequence[Sequence[float]]) -> float:
    """Of a pair's value around 0, which is the truth: root of the mean square, each recorded pair counting once."""
    return math.sqrt(statistics.fmean(statistics.fmean(v * v for v in of_pair) for of_pair in values))


def visible(spread: float) -> float:
    """The gain that so many pairs of this scatter see with the power asked for."""
    error = spread / math.sqrt(PAIRS)
    return error * (student_quantile(1 - CHANCE, PAIRS - 1) + statistics.NormalDist().inv_cdf(POWER))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--blocks", nargs="+", type=int, default=[2, 3], help="in a pair")
    parser.add_argument("--duels", type=int, default=3000, help="resampled for each reading")
    return parser.parse_args()


if __name__ == "__main__":
    main()
