#!/usr/bin/env python3
"""How should a pair be read by the judge's own clocks?  From the raw segments of identical sides that gpu_noise kept.

A pair's value by each clock and each way to read it: the median or the mean of its blocks' log ratios, or the log ratio
of a quantile of each side's segments (what disturbs a segment makes it longer, never shorter). Told for each: the
standard deviation of one pair's value in percent, over every run of so many consecutive blocks, and the gain that ten
such pairs see with a chance of nine in ten where a look may be wrong in one of thirty.

    scripts/experiments/clock_noise.py noise.raw.json.gz --blocks 2 3
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.judge.evidence import student_quantile

CLOCKS = {"events": 1, "the judge's clock": 2, "with the lead-in": 3}
"""Where a block's four times stand in a row of gpu_noise."""

PAIRS, CHANCE, POWER = 10, 0.1 / 3, 0.9

Block = Sequence[Any]
Reading = Callable[[Sequence[Block], int], float]


def main() -> None:
    options = _parse()
    for file in options.files:
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            kept = json.loads(line)
            for row in rows(kept["pairs"], options.blocks):
                print(f"{kept['kind']:8} {kept['variant']:30} {row}")


def rows(pairs: Sequence[Sequence[Block]], counts: Sequence[int]) -> Iterator[str]:
    for clock, column in CLOCKS.items():
        for count in counts:
            for name, read in READINGS.items():
                spread = deviation(pairs, count, column, read)
                seen = 100 * visible(spread)
                yield f"{clock:18} {count} blocks  {name:8} {100 * spread:7.3f} %   sees {seen:6.3f} %"


def deviation(pairs: Sequence[Sequence[Block]], count: int, column: int, read: Reading) -> float:
    """Of a pair's value around 0, which is the truth: root of the mean square, each recorded pair counting once."""
    squares = []
    for blocks in pairs:
        values = [read(blocks[i : i + count], column) for i in range(len(blocks) - count + 1)]
        squares.append(statistics.fmean(value * value for value in values))
    return math.sqrt(statistics.fmean(squares))


def visible(spread: float) -> float:
    """The gain that so many pairs of this scatter see with the power asked for."""
    error = spread / math.sqrt(PAIRS)
    return error * (student_quantile(1 - CHANCE, PAIRS - 1) + statistics.NormalDist().inv_cdf(POWER))


def by_blocks(middle: Callable[[list[float]], float]) -> Reading:
    """The middle of the blocks' log ratios, as duels read them."""

    def read(blocks: Sequence[Block], column: int) -> float:
        return middle([_ratio(block, column) for block in blocks])

    return read


def by_quantile(share: float) -> Reading:
    """The log ratio of each side's segment that this share of its segments is shorter than."""

    def read(blocks: Sequence[Block], column: int) -> float:
        a, b = (
            sorted(
                t for block in blocks for t, turn in zip(block[column], block[0], strict=True) if turn == side
            )
            for side in "AB"
        )
        return math.log(b[int(share * (len(b) - 1))] / a[int(share * (len(a) - 1))])

    return read


READINGS: dict[str, Reading] = {
    "median": by_blocks(statistics.median),
    "mean": by_blocks(statistics.fmean),
    "least": by_quantile(0.0),
    "quarter": by_quantile(0.25),
}


def _ratio(block: Block, column: int) -> float:
    return (
        sum(
            math.log(t) if turn == "B" else -math.log(t)
            for t, turn in zip(block[column], block[0], strict=True)
        )
        / 2
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--blocks", nargs="+", type=int, default=[2, 3], help="in a pair")
    return parser.parse_args()


if __name__ == "__main__":
    main()
