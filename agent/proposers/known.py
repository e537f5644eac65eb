"""Gathers what a briefing is made from."""

from __future__ import annotations

from agent.background import Background
from agent.briefing.briefing import Facts, read_texts
from agent.ledger import Ledger
from agent.proposers.interactions import interactions
from agent.proposers.landscape import survey
from agent.proposers.study import importances


def gather(background: Background, ledger: Ledger, family: str, reason: str) -> Facts:
    """The facts about today's incumbent; `family` and `reason` are what the rhythm asks for."""
    landscape = survey(background.case.knobs, ledger)
    present = ledger.turns[-1] if ledger.turns else None
    return Facts(
        case=background.case,
        texts=read_texts(background.case),
        files=background.files(ledger.incumbent),
        incumbent=ledger.incumbent,
        ledger=ledger,
        family=family,
        reason=reason,
        importances=importances(landscape),
        interactions=interactions(landscape),
        signals=present.signals if present else (),
        profile=ledger.profiles[-1] if ledger.profiles else None,
    )
