"""What was seen of each knob: its importance, and the speedups that its values went with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hillclimb.harness.report.page_ledger import CandidateHistory, as_list, as_object, safe_text
from hillclimb.harness.wording import count

MAX_ROWS_PER_KNOB = 14
"""Rows of one knob; a domain with more values is shown in ranges, or by its most tried ones."""


@dataclass(frozen=True)
class TriedConfiguration:
    """One configuration tried on the current source."""

    n: int
    configuration: Mapping[str, str]
    speedup: float | None
    """None where it failed."""


@dataclass(frozen=True)
class KnobFacts:
    """One knob as knobs.yaml declares it."""

    name: str
    kind: str
    domain: str
    default: str
    """At the start of the run."""
    now: str
    """In the best tree; empty where that does not have it."""
    doc: str = ""
    is_unread: bool = False
    """Whether the source of the best tree never reads it, as far as that can be told."""


@dataclass(frozen=True)
class ValueRow:
    """One value, or one range of values."""

    label: str
    tried: int
    failed: int
    low: float | None
    middle: float | None
    high: float | None
    left: float = 0.0
    """Where the bar from low to high begins on the knob's scale, percent, and how wide it is, and where the middle
    lies."""
    width: float = 0.0
    mark: float = 0.0
    is_default: bool = False
    is_now: bool = False


@dataclass(frozen=True)
class KnobPanel:
    """Everything shown of one knob."""

    facts: KnobFacts
    share: float | None
    """Of importance."""
    rows: tuple[ValueRow, ...]
    lowest: float | None = None
    highest: float | None = None
    """The ends of the scale of its bars."""


def tried_on_source(
    candidates: Iterable[CandidateHistory], defaults: Mapping[str, str]
) -> tuple[TriedConfiguration, ...]:
    """Configurations tried since the last win that edited files, over the baseline; `defaults` are that win's."""
    running, found = dict(defaults), list[TriedConfiguration]()
    for seen in candidates:
        if not seen.judged:
            continue
        tried = running | _knobs_of(seen)
        if as_list(seen.proposal.get("edits")):
            if seen.kept:
                running, found = (
                    dict(defaults),
                    [TriedConfiguration(seen.n, dict(defaults), seen.over_baseline)],
                )
            continue
        found.append(TriedConfiguration(seen.n, tried, seen.over_baseline))
        running = tried if seen.kept else running
    return tuple(found)


def tried_steps(candidates: Iterable[CandidateHistory]) -> tuple[TriedConfiguration, ...]:
    """The knobs that each proposal set, and its speedup over the incumbent that it met."""
    return tuple(
        TriedConfiguration(seen.n, knobs, seen.step.speedup)
        for seen in candidates
        if seen.judged and (knobs := _knobs_of(seen))
    )


def _knobs_of(seen: CandidateHistory) -> dict[str, str]:
    return {
        safe_text(name, 80): _spell(value) for name, value in as_object(seen.proposal.get("knobs")).items()
    }


def _spell(value: object) -> str:
    """As the environment holds it."""
    return str(int(value)) if isinstance(value, bool) else safe_text(value, 200)


def describe_knobs(
    knobs: Iterable[KnobFacts], observations: Iterable[TriedConfiguration], importances: Mapping[str, float]
) -> list[KnobPanel]:
    """A panel a knob, the most important first."""
    seen = list(observations)
    ran = [each.speedup for each in seen if each.speedup and each.speedup > 0]
    scale = (min(ran), max(ran)) if ran else None
    declared = {facts.name: facts for facts in knobs}
    for name in importances:
        declared.setdefault(name, KnobFacts(name, "", "", "", ""))
    panels = [_panel(facts, importances.get(facts.name), seen, scale) for facts in declared.values()]
    return sorted(panels, key=lambda panel: -(panel.share or 0.0))


def _panel(
    facts: KnobFacts, share: float | None, seen: list[TriedConfiguration], scale: tuple[float, float] | None
) -> KnobPanel:
    groups: dict[str, list[TriedConfiguration]] = {}
    for each in seen:
        if facts.name in each.configuration:
            groups.setdefault(each.configuration[facts.name], []).append(each)
    rows = tuple(_row(label, group, facts, scale) for label, group in _few(groups))
    return KnobPanel(facts, share, rows, *(scale or (None, None)))


def _few(groups: dict[str, list[TriedConfiguration]]) -> list[tuple[str, list[TriedConfiguration]]]:
    """At most MAX_VALUES groups in the order of their values: ranges of numbers, or the most tried of names."""
    figures = {label: _figure(label) for label in groups}
    if all(figure is not None for figure in figures.values()):
        ordered = sorted(groups, key=lambda label: figures[label] or 0.0)
        if len(ordered) <= MAX_ROWS_PER_KNOB:
            return [(label, groups[label]) for label in ordered]
        step = math.ceil(len(ordered) / MAX_ROWS_PER_KNOB)
        parts = [ordered[at : at + step] for at in range(0, len(ordered), step)]
        return [(_span(part), [each for label in part for each in groups[label]]) for part in parts]
    often = sorted(groups, key=lambda label: -len(groups[label]))
    rest = [each for label in often[MAX_ROWS_PER_KNOB:] for each in groups[label]]
    shown = [(label, groups[label]) for label in sorted(often[:MAX_ROWS_PER_KNOB])]
    return [*shown, (count(len(often) - MAX_ROWS_PER_KNOB, "other"), rest)] if rest else shown


def _span(part: list[str]) -> str:
    return part[0] if len(part) == 1 else f"{part[0]} … {part[-1]}"


def _figure(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def _row(
    label: str, group: list[TriedConfiguration], facts: KnobFacts, scale: tuple[float, float] | None
) -> ValueRow:
    ran = [each.speedup for each in group if each.speedup is not None and each.speedup > 0]
    holds = {each.configuration[facts.name] for each in group}
    marks = {"is_default": facts.default in holds, "is_now": facts.now in holds}
    if not ran or scale is None:
        return ValueRow(label, len(group), len(group), None, None, None, **marks)
    low, middle, high = min(ran), statistics.median(ran), max(ran)
    left, right = _place(low, scale), _place(high, scale)
    return ValueRow(
        label,
        len(group),
        len(group) - len(ran),
        low,
        middle,
        high,
        left=left,
        width=right - left,
        mark=_place(middle, scale),
        **marks,
    )


def _place(value: float, scale: tuple[float, float]) -> float:
    """Percent of a logarithmic scale."""
    low, high = scale
    return 50.0 if high <= low else 100 * math.log(value / low) / math.log(high / low)
