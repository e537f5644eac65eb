"""What the ledger knows about the knobs: every configuration tried on the current source, and its speedup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.sweep.valid_configs import ValidConfigs, list_valid
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    Knobs,
    KnobValue,
    broken_constraint,
    contains,
    defaults,
    environment_text,
    parse_knobs,
    typed,
)
from hillclimb.harness.records import Estimate, Reason

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import JudgedEntry
    from hillclimb.agent.record.ledger import Candidate, Ledger


Configuration = dict[str, KnobValue]
ConfigurationKey = tuple[str, ...]


@dataclass(frozen=True)
class KnobObservation:
    """One configuration that was judged."""

    n: int
    """The candidate; 0 for the source as it stood before any of them."""
    configuration: Configuration
    """Every knob's value: the defaults of the incumbent of the time, and the proposal's over them."""
    value: float | None
    """Log speedup over the baseline; None where nothing could be timed."""
    reason: Reason | None = None
    estimate: Estimate | None = None
    """Over the incumbent it met, by the last stage that timed it: what `value` comes from."""


@dataclass(frozen=True)
class Landscape:
    """The knobs as the incumbent has them, and what was observed on its source.

    A candidate that edits files and wins makes another source: what was seen before it was seen of another
    kernel, so the landscape starts afresh there.
    """

    knobs: Knobs
    """Defaults are the incumbent's."""
    observations: tuple[KnobObservation, ...] = field(repr=False)

    @cached_property
    def judged_keys(self) -> frozenset[ConfigurationKey]:
        """Configurations that need no second look."""
        return frozenset(self.key(seen.configuration) for seen in self.observations)

    @cached_property
    def valid_configs(self) -> ValidConfigs | None:
        """All configurations that satisfy the constraints; None where they cannot be listed."""
        return list_valid(self.knobs)

    def allows(self, configuration: Mapping[str, KnobValue]) -> bool:
        """Whether a configuration satisfies the constraints."""
        return broken_constraint(self.knobs, configuration) is None

    def key(self, configuration: Mapping[str, KnobValue]) -> ConfigurationKey:
        """What tells two configurations apart: what the kernel would see in its environment."""
        return tuple(environment_text(typed(knob, configuration[name])) for name, knob in self.knobs.items())

    def changes(self, configuration: Mapping[str, KnobValue]) -> Configuration:
        """The knobs that differ from the incumbent's defaults."""
        incumbent = defaults(self.knobs)
        changed = {name: value for name, value in configuration.items() if value != incumbent[name]}
        return {name: typed(self.knobs[name], value) for name, value in changed.items()}


def build_landscape(knobs: Knobs, ledger: Ledger, until: int | None = None) -> Landscape:
    """The landscape as the ledger shows it; `knobs` are those of the run's baseline.

    `until`: as it was after so many candidates.
    """
    start = KnobObservation(0, defaults(knobs), 0.0)
    landscape, seen, cumulative = Landscape(knobs, ()), [start], 1.0
    by_tree: dict[str | None, float | None] = {}
    for candidate in ledger.candidates[:until]:
        judged = candidate.judged
        if judged is None:
            continue
        current = defaults(landscape.knobs)
        if judged.kept:
            cumulative = judged.cumulative.estimate if judged.cumulative else cumulative
            landscape = replace(landscape, knobs=_promote(landscape.knobs, candidate.proposal))
        value = _log_speedup(judged, cumulative)
        if (
            judged.reason is Reason.DOES_NOT_APPLY
        ):  # it runs as the incumbent does, or as the tree judged before
            value = by_tree.get(judged.tree, math.log(cumulative))
        if judged.tree:
            by_tree.setdefault(judged.tree, value)
        if not candidate.proposal.edits:
            seen.append(_observe(candidate, judged, current, value))
        elif judged.kept:
            seen = [_observe(candidate, judged, defaults(landscape.knobs), value)]
    return replace(landscape, observations=tuple(_fitting(landscape.knobs, seen)))


def _observe(
    candidate: Candidate, judged: JudgedEntry, current: Configuration, value: float | None
) -> KnobObservation:
    configuration = {**current, **candidate.proposal.knobs}
    return KnobObservation(candidate.n, configuration, value, judged.reason, judged.estimate)


def _log_speedup(judged: JudgedEntry, cumulative: float) -> float | None:
    """Over the baseline. A win is measured against it; a rejection only against the incumbent of the time."""
    if judged.kept:
        return math.log(cumulative)
    seen = judged.estimate
    return math.log(cumulative * seen.speedup) if seen and seen.speedup > 0 else None


def _promote(knobs: Knobs, proposal: Proposal) -> Knobs:
    """The knobs after a proposal won: its knobs.yaml if it edits one, its values as the defaults."""
    for edit in proposal.edits:
        if edit.path == KNOBS_FILE:
            knobs = _read(edit.content or "")
    return {
        name: knob.model_copy(update={"default": proposal.knobs[name]}) if name in proposal.knobs else knob
        for name, knob in knobs.items()
    }


@lru_cache(maxsize=64)
def _read(text: str) -> Knobs:
    """The knobs a win brought along; a kernel may win without any, or with a file only it can read."""
    try:
        return parse_knobs(text, Path(KNOBS_FILE))
    except CaseError:
        return {}


def _fitting(knobs: Knobs, seen: list[KnobObservation]) -> Iterator[KnobObservation]:
    """Observations whose every value lies in its domain; a proposal from elsewhere may have named any."""
    finite = {name: {(type(value), value) for value in knob.values() or ()} for name, knob in knobs.items()}
    for observation in seen:
        values = observation.configuration
        if values.keys() == knobs.keys() and all(
            (type(value), value) in finite[name] or (not finite[name] and contains(knobs[name], value))
            for name, value in values.items()
        ):
            yield observation
