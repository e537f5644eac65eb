"""Gathers what a briefing is made from."""

from __future__ import annotations

from agent.background import Background
from agent.briefing.briefing import Facts, read_texts
from agent.ledger import Ledger
from agent.proposers.interactions import interactions
from agent.proposers.landscape import Landscape, survey
from agent.proposers.study import importances

Statistics = tuple[dict[str, float], dict[tuple[str, str], float]]


class Known:
    """One run's facts; the statistics of the sweep are reckoned once for each state of it."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._texts = read_texts(background.case)
        self._reckoned: tuple[object, Statistics] | None = None

    def gather(self, ledger: Ledger, family: str, reason: str) -> Facts:
        """The facts about today's incumbent; `family` and `reason` are what the rhythm asks for."""
        shares, pairs = self._reckon(survey(self._background.case.knobs, ledger))
        present = ledger.turns[-1] if ledger.turns else None
        return Facts(
            case=self._background.case,
            texts=self._texts,
            files=self._background.files(ledger.incumbent),
            incumbent=ledger.incumbent,
            ledger=ledger,
            family=family,
            reason=reason,
            importances=shares,
            interactions=pairs,
            signals=present.signals if present else (),
            profile=ledger.profiles[-1] if ledger.profiles else None,
        )

    def _reckon(self, landscape: Landscape) -> Statistics:
        state = (tuple(landscape.knobs), tuple(seen.n for seen in landscape.observations))
        if self._reckoned is None or self._reckoned[0] != state:
            shares = importances(landscape)
            self._reckoned = (state, (shares, interactions(landscape, list(shares))))
        return self._reckoned[1]
