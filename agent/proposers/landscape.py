"""What the ledger knows about the knobs: every configuration tried on the current source, and its speedup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.proposal import Proposal
from agent.proposers.listing import Listing, list_valid
from harness.case.knobs import (
    KNOBS_FILE,
    Knobs,
    Value,
    broken,
    contains,
    defaults,
    environment_text,
    parse_knobs,
)
from harness.errors import CaseError
from harness.records import Reason

if TYPE_CHECKING:
    from agent.entries import Judged
    from agent.ledger import Candidate, Ledger


Configuration = dict[str, Value]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Observation:
    """One configuration that was judged."""

    n: int
    """The candidate; 0 for the source as it stood before any of them."""
    configuration: Configuration
    """Every knob's value: the defaults of the incumbent of the time, and the proposal's over them."""
    value: float | None
    """Log speedup over the baseline; None where nothing could be timed."""
    reason: Reason | None = None


@dataclass(frozen=True)
class Landscape:
    """The knobs as the incumbent has them, and what was observed on its source.

    A candidate that edits files and wins makes another source: what was seen before it was seen of another
    kernel, so the landscape starts afresh there.
    """

    knobs: Knobs
    """Defaults are the incumbent's."""
    observations: tuple[Observation, ...] = field(repr=False)

    @cached_property
    def judged(self) -> frozenset[Key]:
        """Configurations that need no second look."""
        return frozenset(self.key(seen.configuration) for seen in self.observations)

    @cached_property
    def listing(self) -> Listing | None:
        """All configurations that satisfy the constraints; None where they cannot be listed."""
        return list_valid(self.knobs)

    def allows(self, configuration: Mapping[str, Value]) -> bool:
        """Whether a configuration satisfies the constraints."""
        return broken(self.knobs, configuration) is None

    def key(self, configuration: Mapping[str, Value]) -> Key:
        """What tells two configurations apart: what the kernel would see in its environment."""
        return tuple(environment_text(configuration[name]) for name in self.knobs)

    def changes(self, configuration: Mapping[str, Value]) -> Configuration:
        """The knobs that differ from the incumbent's defaults."""
        incumbent = defaults(self.knobs)
        return {name: value for name, value in configuration.items() if value != incumbent[name]}


def survey(knobs: Knobs, ledger: Ledger, until: int | None = None) -> Landscape:
    """The landscape as the ledger shows it; `knobs` are those of the run's baseline.

    `until`: as it was after so many candidates.
    """
    start = Observation(0, defaults(knobs), 0.0)
    landscape, seen, cumulative = Landscape(knobs, ()), [start], 1.0
    for candidate in ledger.candidates[:until]:
        judged = candidate.judged
        if judged is None:
            continue
        current = defaults(landscape.knobs)
        if judged.kept:
            cumulative = judged.cumulative.estimate if judged.cumulative else cumulative
            landscape = replace(landscape, knobs=_promote(landscape.knobs, candidate.proposal))
        if not candidate.proposal.edits:
            seen.append(_observe(candidate, judged, current, cumulative))
        elif judged.kept:
            seen = [Observation(candidate.n, defaults(landscape.knobs), math.log(cumulative))]
    return replace(landscape, observations=tuple(_fitting(landscape.knobs, seen)))


def _observe(candidate: Candidate, judged: Judged, current: Configuration, cumulative: float) -> Observation:
    configuration = {**current, **candidate.proposal.knobs}
    return Observation(candidate.n, configuration, _log_speedup(judged, cumulative), judged.reason)


def _log_speedup(judged: Judged, cumulative: float) -> float | None:
    """Over the baseline. A win is measured against it; a rejection only against the incumbent of the time."""
    if judged.kept:
        return math.log(cumulative)
    against_incumbent = judged.speedup.estimate if judged.speedup else judged.screened
    if against_incumbent is None or against_incumbent <= 0:
        return None
    return math.log(cumulative * against_incumbent)


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


def _fitting(knobs: Knobs, seen: list[Observation]) -> Iterator[Observation]:
    """Observations whose every value lies in its domain; a proposal from elsewhere may have named any."""
    finite = {name: {(type(value), value) for value in knob.values() or ()} for name, knob in knobs.items()}
    for observation in seen:
        values = observation.configuration
        if values.keys() == knobs.keys() and all(
            (type(value), value) in finite[name] or (not finite[name] and contains(knobs[name], value))
            for name, value in values.items()
        ):
            yield observation
