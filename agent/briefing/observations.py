"""What was seen of the knobs on the present source: the spread, the best and the worst, and each value's best."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from agent.briefing.quotation import quoted
from harness.case.knobs import Value, environment_text

if TYPE_CHECKING:
    from agent.proposers.landscape import Configuration, Landscape, Observation

K = TypeVar("K")

BEST = 3
MOST_VALUES = 12
"""Values of one knob that are told of: the best ones."""


@dataclass(frozen=True)
class Seen:
    """What there is to tell, as lines; speedups are over the incumbent."""

    spread: tuple[str, ...]
    """How the configurations scatter, the best and the worst of them."""
    values: tuple[str, ...]
    """One line a knob: every value's best speedup, how often it was tried, and how often that failed."""


def observe(landscape: Landscape, cumulative: float) -> Seen:
    """`cumulative` is the incumbent's speedup over the baseline. Empty before a configuration was judged."""
    if len(landscape.observations) < 2:
        return Seen((), ())
    values = tuple(_knob(name, landscape, cumulative) for name in landscape.knobs)
    return Seen(tuple(_spread(landscape, cumulative)), values)


def _spread(landscape: Landscape, cumulative: float) -> Iterator[str]:
    seen = landscape.observations
    timed = sorted((o for o in seen if o.value is not None), key=lambda o: -(o.value or 0.0))
    if not timed:
        return
    speeds = [_speedup(o, cumulative) for o in timed]
    yield (
        f"{len(seen)} configurations judged on the present source: best {speeds[0]:.3f}x, "
        f"median {statistics.median(speeds):.3f}x, worst {speeds[-1]:.3f}x of the incumbent; "
        f"{len(seen) - len(timed)} failed."
    )
    for observation in timed[:BEST]:
        yield f"best: {_tell(observation, landscape, cumulative)}"
    if len(timed) > BEST:
        yield f"worst: {_tell(timed[-1], landscape, cumulative)}"


def shares(importances: Mapping[str, float], interactions: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """Each knob's share in what made configurations fast, and the pairs that matter together."""
    if importances:
        told = ", ".join(f"{name} {share:.0%}" for name, share in _sorted(importances))
        yield f"Importance: {told}."
    if interactions:
        told = ", ".join(f"{a} with {b} {share:.0%}" for (a, b), share in _sorted(interactions)[:8])
        yield f"Explained only by two knobs together: {told}."


def _knob(name: str, landscape: Landscape, cumulative: float) -> str:
    groups: dict[str, list[Observation]] = {}
    for observation in landscape.observations:
        groups.setdefault(_text(observation.configuration[name]), []).append(observation)
    order = [_text(value) for value in landscape.knobs[name].values() or ()]
    shown = sorted(groups, key=lambda text: -_best(groups[text], cumulative))[:MOST_VALUES]
    shown.sort(key=lambda text: order.index(text) if text in order else len(order))
    told = [f"{text}: {_value(groups[text], cumulative)}" for text in shown]
    rest = len(groups) - len(shown)
    more = f" | and {rest} worse values" if rest else ""
    return f"{name} (now {_text(landscape.knobs[name].default)}): {' | '.join(told)}{more}"


def _value(seen: Sequence[Observation], cumulative: float) -> str:
    failed = sum(1 for o in seen if o.value is None)
    lost = f", {failed} failed" if failed else ""
    if failed == len(seen):
        return f"all {failed} failed"
    return f"{_best(seen, cumulative):.3f}x of {len(seen)}{lost}"


def _best(seen: Sequence[Observation], cumulative: float) -> float:
    return max((_speedup(o, cumulative) for o in seen if o.value is not None), default=0.0)


def _speedup(observation: Observation, cumulative: float) -> float:
    return math.exp(observation.value or 0.0) / cumulative


def _tell(observation: Observation, landscape: Landscape, cumulative: float) -> str:
    which = _spell(landscape.changes(observation.configuration)) or "the incumbent's own values"
    reason = f", {observation.reason.value}" if observation.reason else ""
    number = f" (#{observation.n}{reason})" if observation.n else " (the start)"
    return f"{which}: {_speedup(observation, cumulative):.3f}x{number}"


def _spell(changes: Configuration) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in changes.items())


def _text(value: Value) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else environment_text(value)
    return text if re.fullmatch(r"[\w.+-]{1,40}", text) else quoted(text, 40)


def _sorted(values: Mapping[K, float]) -> list[tuple[K, float]]:
    return sorted(values.items(), key=lambda item: -item[1])
