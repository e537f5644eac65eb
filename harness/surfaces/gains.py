"""How metrics are read off blocks and pairs: how many times better A is than B, whichever way is better."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from hillclimb.harness.case.metrics import WALL, Metric
from hillclimb.harness.records import Block, MetricReport, Pair
from hillclimb.harness.statistics import evidence
from hillclimb.harness.statistics.readings import Letter, log_ratio


def values_of(block: Block, name: str) -> tuple[float, ...]:
    """Of a metric, by segment."""
    if name == WALL:
        return block.seconds
    return next(one.values for one in block.metrics if one.metric == name)


def log_gain(block: Block, name: str, metric: Metric) -> float:
    """Of one block; positive where A is better."""
    ratio = log_ratio(block, lambda one: values_of(one, name))
    return ratio if metric.direction == "lower" else -ratio


def median_log_gain(pair: Pair, name: str, metric: Metric) -> float:
    """Of a pair: the median of its blocks."""
    return statistics.median(log_gain(block, name, metric) for block in pair.blocks)


def typical(pairs: Sequence[Pair], name: str, letter: Letter) -> float:
    """One side's value, geometric mean over all segments."""
    logs = [
        math.log(value)
        for pair in pairs
        for block in pair.blocks
        for value, turn in zip(values_of(block, name), block.order, strict=True)
        if turn == letter
    ]
    return math.exp(statistics.fmean(logs))


def report_metrics(pairs: Sequence[Pair], metrics: Mapping[str, Metric]) -> list[MetricReport]:
    """Every metric of every suite that two pairs or more have measured."""
    reports = []
    for suite in dict.fromkeys(pair.suite for pair in pairs):
        group = [pair for pair in pairs if pair.suite == suite]
        for name, metric in metrics.items() if len(group) > 1 else ():
            gains = [median_log_gain(pair, name, metric) for pair in group]
            reports.append(
                MetricReport(
                    suite=suite,
                    metric=name,
                    unit=metric.unit,
                    direction=metric.direction,
                    value=typical(group, name, "A"),
                    before=typical(group, name, "B"),
                    gain=evidence.interval(gains),
                )
            )
    return reports
