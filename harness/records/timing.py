"""What was timed: intervals, blocks, pairs, and what two trials made of them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from hillclimb.harness.records.record import Record
from hillclimb.harness.records.verdict import GateReport, Reason


class Interval(Record):
    """A speedup with the confidence interval of its mean over fresh process pairs."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95
    pairs: int

    def __str__(self) -> str:
        return f"{self.estimate:.3f}x [{self.low:.3f}, {self.high:.3f}]"


Stage = Literal["screen", "decide", "report"]
"""The stages of a trial that time a candidate, in their order."""

_VERBS: dict[Stage, str] = {"screen": "screened", "decide": "decided", "report": "measured"}


class Estimate(Record):
    """A candidate's speedup over its incumbent as one stage saw it, with the interval where that has two pairs."""

    stage: Stage
    speedup: float
    interval: Interval | None = None
    """None for a screening, and for a decision after one pair: one value has no scatter."""

    @property
    def verb(self) -> str:
        """What its stage did: screened, decided or measured."""
        return _VERBS[self.stage]

    def __str__(self) -> str:
        """`screened 1.396x`, `decided 0.844x [0.840, 0.848]`, `measured 1.834x [1.821, 1.847]`."""
        return f"{self.verb} {self.interval or f'{self.speedup:.3f}x'}"


def last_estimate(
    screened: float | None, decided: Estimate | None, reported: Interval | None
) -> Estimate | None:
    """What the last stage that timed a candidate saw: a lucky screening counts no more once fresh pairs were taken."""
    if reported:
        return Estimate(stage="report", speedup=reported.estimate, interval=reported)
    if decided or screened is None:
        return decided
    return Estimate(stage="screen", speedup=screened)


class Environment(Record):
    """What else the machine was doing while a block ran."""

    steal: float = 0.0
    """Share of CPU time taken by the hypervisor, 0 to 1."""
    others: float = 0.0
    """CPUs' worth of work done meanwhile by processes that are not part of the duel."""
    sm_mhz: tuple[int, int] | None = None
    """Clock of a GPU's multiprocessors when the block began and when it ended. This and what follows: None on a CPU,
    and where the driver does not tell; a field that is None is left out of the JSON."""
    memory_mhz: int | None = None
    """Clock of a GPU's memory, the lower of the two."""
    celsius: int | None = None
    """A GPU's temperature when the block ended."""
    watts: int | None = None
    """A GPU's power when the block ended."""
    throttle: tuple[str, ...] | None = None
    """Why a GPU's clocks were held down, at either end of the block, as NVML names it; idleness does not count."""
    tenants: int | None = None
    """Processes that used the GPU and are not part of the duel; None where the driver's pids are not ours."""
    crowded: int | None = None
    """Segments before which the judge's own work on the GPU took longer than usual: it was not alone there."""

    @model_serializer(mode="wrap")
    def _without_unknowns(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Thousands of blocks are kept: what is not known takes no place in them."""
        return {name: value for name, value in handler(self).items() if value is not None}


class SegmentMetric(Record):
    """A metric of the segments of a block."""

    metric: str
    values: tuple[float, ...]
    """In the metric's own unit, in the order run."""


class Block(Record):
    """Segments of one suite that belong together: four of a suite of problems, or one run of a command each."""

    order: Literal["ABBA", "BAAB", "AB", "BA"]
    seconds: tuple[float, ...]
    """Seconds per call of each segment in the order run, by the judge's clock, geometric mean over the problems; of a
    command, seconds per run."""
    events: tuple[float, ...] | None = None
    """As `seconds`, by each side's own device events; None on a CPU. Believed only where the judge's clock agrees."""
    whole: tuple[float, ...] | None = None
    """As `seconds`, the untimed lead-in on a GPU included: where work done ahead of its time would show."""
    metrics: tuple[SegmentMetric, ...] = ()
    """What else was measured; left out of the JSON where there is nothing."""
    environment: Environment = Environment()

    @model_validator(mode="after")
    def _has_a_value_a_segment(self) -> Block:
        given = (self.seconds, self.events, self.whole, *(one.values for one in self.metrics))
        if any(values is not None and len(values) != len(self.order) for values in given):
            raise ValueError(f"a block {self.order} has {len(self.order)} values of everything")
        return self

    @model_serializer(mode="wrap")
    def _without_no_metrics(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name != "metrics" or value}


class Pair(Record):
    """One pair of fresh processes: A is the candidate, B the one it is compared with."""

    stage: Literal["noise", "screen", "decide", "alone", "report", "cumulative", "guardrail"]
    suite: str
    blocks: tuple[Block, ...]
    dropped: int = 0
    """Disturbed blocks, measured again."""
    dropped_for: tuple[str, ...] = ()
    """What disturbed them, of each block everything that did."""
    opponent_alone: tuple[float, ...] = ()
    """B's seconds per call, by segment, after A had ended; in some deciding pairs on a GPU, and where
    those showed B slowed, in the report's."""


class MetricReport(Record):
    """One metric of one suite, of a candidate and of what it is compared with."""

    suite: str
    metric: str
    unit: str
    direction: Literal["lower", "higher"]
    """Which way is better."""
    value: float
    """The candidate's, geometric mean over all segments."""
    before: float
    """The other side's."""
    gain: Interval
    """How many times better; above 1 is better in either direction."""

    def __str__(self) -> str:
        """`80.12 -> 100.2 tok/s, 1.251x [1.244, 1.258]`"""
        return f"{self.before:.4g} -> {self.value:.4g} {self.unit}, {self.gain}"


class GuardrailReport(Record):
    suite: str
    metric: str = ""
    """Of a command; empty where it is time."""
    speedup: Interval
    """Of another metric than time: how many times better it is."""
    max_slowdown: float
    passed: bool


class Screening(Record):
    """Gate and first pair. `reason` is None while the candidate is still in the running."""

    gate: GateReport
    reason: Reason | None
    detail: str = ""
    speedup: float | None = None
    """Point estimate from the screening pair; a lead for the search, never a claim."""
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class Confirmation(Record):
    """Decision over fresh pairs, and the speedup measured afresh after it."""

    gate: GateReport
    reason: Reason | None
    detail: str = ""
    alpha: float
    e_value: float = 0.0
    decided: Estimate | None = None
    """Over the deciding pairs, whichever way they decided; None where not one was finished."""
    refuted: Interval | None = None
    """Over the report pairs, where they did not bear the decision out."""
    speedup: Interval | None = None
    """Against the incumbent, of what is kept."""
    cumulative: Interval | None = None
    """Against the baseline, measured, never multiplied up."""
    seconds_per_call: float | None = None
    """The candidate's own, over the objective's suite, in the report pairs."""
    metrics: tuple[MetricReport, ...] = ()
    """Of a command: everything that it printed in the report pairs, and its guardrails' in the deciding ones."""
    guardrails: tuple[GuardrailReport, ...] = ()
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class Comparison(Record):
    """Two trees measured against each other over fresh pairs, without a decision."""

    speedup: Interval
    seconds_per_call: tuple[float, float]
    """(first side's, second side's)."""
    pair_sd: float
    """Standard deviation of one pair's log ratio."""
    metrics: tuple[MetricReport, ...] = ()
    """Of a command."""
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0


class ProblemTime(Record):
    """One problem of the objective's suite, timed alone."""

    problem: str
    seconds_per_call: float
    flops: float
    """Floating-point operations that one call must do, from the contract."""
    bytes: float
    """Bytes that one call must move, read once plus written once, from the contract."""
