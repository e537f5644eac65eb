"""Looking ahead: while one candidate is measured, the judge compiles what will probably be asked about next.

All of it are hints. What is announced counts for nothing until it is proposed; the judge may ignore a hint, and one
that fails is forgotten. What is announced and never proposed leaves a folder in trees/ until the session ends, and
objects in git that no ref points at.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent.candidate import Built
from agent.ledger import Candidate, Ledger
from agent.proposal import Proposal, Proposer, peek
from agent.trial import Court, judged_before, why_unfenced
from harness.errors import HillclimbError, Stop
from harness.records import Provenance

AHEAD = 3
"""Proposals that are foreseen on a GPU; compiling one takes about as long as screening one, on another core."""


def depth(provenance: Provenance) -> int:
    """How many proposals to look ahead: none on a CPU, where whatever runs beside a measurement disturbs it."""
    return AHEAD if provenance.device_id.startswith("GPU-") else 0


def room(cores: int) -> int:
    """How many sides can be compiled beside the present one: the judge takes half of the cores for it."""
    return max(0, cores // 2 - 1)


class Lookahead:
    """Builds and announces what comes next."""

    def __init__(self, court: Court) -> None:
        self._court = court
        self._count = min(court.ahead, room(os.cpu_count() or 1))
        self._folders: dict[str, tuple[Path, ...]] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Trees that the judge may be reading: announced, and not proposed yet."""
        return tuple(folder for folders in self._folders.values() for folder in folders)

    def end(self) -> None:
        """Nothing that was announced is needed any more."""
        self._folders = {}

    def announce(self, proposer: Proposer, candidate: Candidate, ledger: Ledger) -> None:
        """Tell the judge of the present candidate, then of what would follow if nothing changed."""
        if not self._court.ahead:
            return
        incumbent = self._court.builder.side(ledger.incumbent)
        for proposal in (candidate.proposal, *self._foresee(proposer, ledger)):
            built = self._build(proposal, ledger)
            if built:
                self._court.judge.hint(built.screened, incumbent)
        self._folders.pop(candidate.proposal.model_dump_json(), None)

    def _foresee(self, proposer: Proposer, ledger: Ledger) -> Sequence[Proposal]:
        try:
            return peek(proposer, ledger, self._count)
        except Stop:
            raise
        except HillclimbError:
            return ()  # `propose` meets whatever is wrong, where it counts

    def _build(self, proposal: Proposal, ledger: Ledger) -> Built | None:
        """The candidate that the proposal would become; None where it would not be run."""
        if why_unfenced(self._court, proposal):
            return None
        try:
            built = self._court.build(proposal, ledger.incumbent)
        except Stop:
            raise
        except HillclimbError:
            return None  # if it is proposed, it is built again, and whatever is wrong with it recorded
        if judged_before(ledger, built.tree):
            return None
        self._folders[proposal.model_dump_json()] = (Path(built.screened.tree), Path(built.confirmed.tree))
        return built
