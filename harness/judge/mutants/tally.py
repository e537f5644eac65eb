"""How near each wrong result came to being rejected, and which of those that are accepted are excused."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.errors import CaseError
from hillclimb.harness.records import SurvivingMutant

EXCUSES = "Contract.excused"


@dataclass
class MutantTally:
    """Of each wrong result, by name, the largest error that was seen, and where."""

    nearest: dict[str, SurvivingMutant] = field(default_factory=dict)

    def note(self, name: str, share: float, place: str = "") -> None:
        """One result at `problem/distribution`; a larger error than those before takes their place."""
        if name not in self.nearest or share > self.nearest[name].share:
            problem, _, distribution = place.partition("/")
            self.nearest[name] = SurvivingMutant(
                mistake=name, problem=problem, distribution=distribution, share=share
            )

    def is_rejected(self, name: str) -> bool:
        return name in self.nearest and self.nearest[name].share > 1

    def accepted(self) -> tuple[SurvivingMutant, ...]:
        """In the order in which they were first tried."""
        return tuple(found for found in self.nearest.values() if found.share <= 1)


def excused(accepted: Iterable[SurvivingMutant], excuses: Mapping[str, str]) -> tuple[SurvivingMutant, ...]:
    """Those of the accepted that have an excuse, with its reason."""
    return tuple(
        found.model_copy(update={"excuse": excuses[found.mistake]})
        for found in accepted
        if found.mistake in excuses
    )


def expect_needed(
    tally: MutantTally, excuses: Mapping[str, str], untried: Iterable[str], file: Path | str
) -> None:
    """Raises CaseError for an excuse of what is rejected or not known; `untried` may be needed on another machine."""
    for name in excuses:
        if tally.is_rejected(name):
            raise CaseError(
                file, EXCUSES, f"names {name!r}, which the contract rejects", "remove it: it is needless"
            )
        known = [*tally.nearest, *untried]
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)
            remedy = f"did you mean {near[0]!r}?" if near else "remove it"
            raise CaseError(file, EXCUSES, f"names {name!r}, which no wrong result is called", remedy)
