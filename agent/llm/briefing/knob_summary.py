"""What was seen of the knobs on the present source: the spread, the best and the worst, and each value's best."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hillclimb.agent.llm.briefing.quoting import quoted
from hillclimb.harness.knobs.knobs import KnobValue, environment_text
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.sweep.landscape import Configuration, KnobObservation, Landscape

K = TypeVar("K")

MAX_BEST_LISTED = 3
MAX_VALUES_PER_KNOB = 12
"""Values of one knob that are told of: the best ones."""


@dataclass(frozen=True)
class KnobSummary:
    """What there is to tell, as lines; speedups are over the incumbent."""

    spread: tuple[str, ...]
    """How the configurations scatter, the best and the worst of them."""
    values: tuple[str, ...]
    """One line a knob: every value's best speedup and the stage that saw it, how often it was tried, and failed."""


def summarise_knobs(landscape: Landscape, cumulative: float) -> KnobSummary:
    """`cumulative` is the incumbent's speedup over the baseline. Empty before a configuration was judged."""
    if len(landscape.observations) < 2:
        return KnobSummary((), ())
    values = tuple(_knob(name, landscape, cumulative) for name in landscape.knobs)
    return KnobSummary(tuple(_spread(landscape, cumulative)), values)


def _spread(landscape: Landscape, cumulative: float) -> Iterator[str]:
    seen = landscape.observations
    timed = sorted((o for o in seen if o.value is not None), key=lambda o: -(o.value or 0.0))
    if not timed:
        return
    speeds = [_speedup(o, cumulative) for o in timed]
    yield (
        f"{count(len(seen), 'configuration')} judged on the present source: best {speeds[0]:.3f}x, "
        f"median {statistics.median(speeds):.3f}x, worst {speeds[-1]:.3f}x of the incumbent; "
        f"{len(seen) - len(timed)} failed."
    )
    for observation in timed[:MAX_BEST_LISTED]:
        yield f"best: {_tell(observation, landscape, cumulative)}"
    if len(timed) > MAX_BEST_LISTED:
        yield f"worst: {_tell(timed[-1], landscape, cumulative)}"


def shares(
    importances: Mapping[str, float], missing: str, interactions: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    """Each knob's share in what made configurations fast or why none is told, and the pairs that matter together."""
    told = ", ".join(f"{name} {share:.0%}" for name, share in _sorted(importances))
    if told or missing:
        yield f"Importance: {told or missing}."
    if interactions:
        told = ", ".join(f"{a} with {b} {share:.0%}" for (a, b), share in _sorted(interactions)[:8])
        yield f"Explained only by two knobs together: {told}."


def _knob(name: str, landscape: Landscape, cumulative: float) -> str:
    groups: dict[str, list[KnobObservation]] = {}
    for observation in landscape.observations:
        groups.setdefault(_text(observation.configuration[name]), []).append(observation)
    order = [_text(value) for value in landscape.knobs[name].values() or ()]
    shown = sorted(groups, key=lambda text: -_best(groups[text], cumulative))[:MAX_VALUES_PER_KNOB]
    shown.sort(key=lambda text: order.index(text) if text in order else len(order))
    told = [f"{text}: {_value(groups[text], cumulative)}" for text in shown]
    rest = len(groups) - len(shown)
    more = f" | and {rest} worse values" if rest else ""
    return f"{name} (now {_text(landscape.knobs[name].default)}): {' | '.join(told)}{more}"


def _value(seen: Sequence[KnobObservation], cumulative: float) -> str:
    failed = sum(1 for o in seen if o.value is None)
    lost = f", {failed} failed" if failed else ""
    if failed == len(seen):
        return f"all {failed} failed"
    best = max(seen, key=lambda o: -math.inf if o.value is None else o.value)
    return f"{_speedup(best, cumulative):.3f}x{_stage(best)} of {len(seen)}{lost}"


def _best(seen: Sequence[KnobObservation], cumulative: float) -> float:
    return max((_speedup(o, cumulative) for o in seen if o.value is not None), default=0.0)


def _speedup(observation: KnobObservation, cumulative: float) -> float:
    return math.exp(observation.value or 0.0) / cumulative


def _tell(observation: KnobObservation, landscape: Landscape, cumulative: float) -> str:
    which = _spell(landscape.changes(observation.configuration)) or "the incumbent's own values"
    reason = f", {observation.reason.value}" if observation.reason else ""
    number = f" (#{observation.n}{reason})" if observation.n else " (the start)"
    return f"{which}: {_speedup(observation, cumulative):.3f}x{_stage(observation)}{number}"


def _stage(observation: KnobObservation) -> str:
    """Which stage the figure is of; empty for the start, which is 1 by definition."""
    return f" {observation.estimate.verb}" if observation.estimate else ""


def _spell(changes: Configuration) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in changes.items())


def _text(value: KnobValue) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else environment_text(value)
    return text if re.fullmatch(r"[\w.+-]{1,40}", text) else quoted(text, 40)


def _sorted(values: Mapping[K, float]) -> list[tuple[K, float]]:
    return sorted(values.items(), key=lambda item: -item[1])
