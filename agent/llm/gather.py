"""Gathers what a briefing says, from the ledger and the case; nothing else of the briefing reads either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hillclimb.agent.llm.briefing.briefing import Facts, read_texts
from hillclimb.agent.llm.briefing.headroom import headroom
from hillclimb.agent.llm.briefing.knob_summary import summarise_knobs
from hillclimb.agent.llm.briefing.lanes import lane_lines
from hillclimb.agent.llm.briefing.ledger_summary import summarise_ledger
from hillclimb.agent.llm.briefing.quoting import quoted
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.importance import KnobImportances, compute_importances
from hillclimb.agent.sweep.interactions import interactions
from hillclimb.agent.sweep.landscape import Landscape, build_landscape
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.records import Profile

SweepStatistics = tuple[KnobImportances, dict[tuple[str, str], float]]


class FactGatherer:
    """One run's facts; the statistics of the sweep are reckoned once for each state of it."""

    def __init__(self, background: ProposerContext) -> None:
        self._background = background
        self._texts = read_texts(background.case)
        self._cached_statistics: tuple[object, SweepStatistics] | None = None

    def gather(self, ledger: Ledger, family: str, reason: str) -> Facts:
        """The facts about today's incumbent; `family` and `reason` are what the rhythm asks for."""
        case = self._background.case
        landscape = build_landscape(case.knobs, ledger)
        weighed, pairs = self._compute_statistics(landscape)
        present = ledger.turns[-1] if ledger.turns else None
        return facts_of(
            ledger,
            case,
            landscape,
            texts=self._texts,
            files=self._background.files(ledger.incumbent),
            family=family,
            reason=reason,
            importances=weighed.shares,
            importances_missing=weighed.missing,
            interactions=pairs,
            signals=present.signals if present else (),
        )

    def _compute_statistics(self, landscape: Landscape) -> SweepStatistics:
        state = (tuple(landscape.knobs), tuple(seen.n for seen in landscape.observations))
        if self._cached_statistics is None or self._cached_statistics[0] != state:
            weighed = compute_importances(landscape)
            self._cached_statistics = (state, (weighed, interactions(landscape, list(weighed.shares))))
        return self._cached_statistics[1]


def facts_of(ledger: Ledger, case: Case, landscape: Landscape, *, family: str = "", **more: Any) -> Facts:
    """The facts that a ledger tells; `more` are those fields of Facts that it does not, or that shall differ."""
    # the landscape's values stand on the figure of then; a later measurement is another
    kept = ledger.cumulative_when_kept
    profile = more.get("profile", ledger.profiles[-1] if ledger.profiles else None)
    known: dict[str, Any] = {
        "incumbent": ledger.incumbent,
        "profile": profile,
        "headroom": headroom(profile.profile) if profile else (),
        "lane_lines": tuple(_lane_lines(profile.profile)) if profile else (),
        "past": summarise_ledger(ledger, family),
        "seen": summarise_knobs(landscape, kept.estimate if kept else 1.0),
        "machine": _machine(ledger),
        "unread_knobs": unread_knobs(more.get("files", {}), landscape.knobs),
    }
    return Facts(case=case, family=family, **{**known, **more})


def _lane_lines(profile: Profile) -> Iterator[str]:
    for lanes in profile.lanes:
        yield from lane_lines(lanes, quoted)


def _machine(ledger: Ledger) -> str:
    if ledger.opened is None:
        return ""
    provenance = ledger.opened.provenance
    software = ", ".join(f"{name} {version}" for name, version in sorted(provenance.software.items()))
    return f"{provenance.device}; {software}"
