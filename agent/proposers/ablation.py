"""Re-ablation: once the source has changed, tries to do without a win that is older than the change.

A win was measured on the kernel of its time. What it brought may be worth nothing, or cost something, on the one that
came later; the smallest wins are asked first, being the likeliest to have turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.replies.merging import MergeConflict, revert
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.rhythm.families import gain
from hillclimb.agent.rhythm.signals import unchecked_wins
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    Knobs,
    KnobValue,
    broken_constraint,
    contains,
    defaults,
    parse_knobs,
)

if TYPE_CHECKING:
    from hillclimb.agent.proposer import ProposerContext
    from hillclimb.agent.record.ledger import Candidate, Ledger

MAX_EXAMINED_WINS = 30
"""Most wins that are looked into for one proposal; each costs three trees read from git."""


class AblationProposer:
    """Proposes taking back one older win, each once for every change of the source."""

    def __init__(self, background: ProposerContext) -> None:
        self._background = background

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The incumbent without one of the older wins; None where none is left that can be taken out."""
        return next(self._all(ledger), None)

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """See hillclimb.agent.proposer.CanPeek."""
        return tuple(islice(self._all(ledger), count))

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """It reckons none."""
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def _all(self, ledger: Ledger) -> Iterator[Proposal]:
        for win in sorted(unchecked_wins(ledger), key=gain)[:MAX_EXAMINED_WINS]:
            proposal = self._without(win, ledger.incumbent)
            if proposal:
                yield proposal

    def _without(self, win: Candidate, incumbent: str) -> Proposal | None:
        if win.judged is None or win.judged.commit is None:
            return None
        before, now = self._files(win.judged.parent), self._files(incumbent)
        edits: tuple[Edit, ...] = ()
        knobs: dict[str, KnobValue] = {}
        if win.proposal.edits:
            try:
                edits = revert(before, self._files(win.judged.commit), now)
            except MergeConflict:
                return None
        else:
            knobs = _values_before_win(win.proposal.knobs, _knobs(before), _knobs(now))
        if not edits and not knobs:
            return None
        idea = f"without #{win.n}: {win.proposal.idea}"
        return Proposal(
            author="ablation", idea=idea, family=win.proposal.family, edits=edits, knobs=knobs, undoes=win.n
        )

    def _files(self, commit: str) -> Mapping[str, str]:
        files = self._background.files(commit)
        return {path: text for path, text in files.items() if is_judged(path)}


def _values_before_win(won: Mapping[str, KnobValue], before: Knobs, now: Knobs) -> dict[str, KnobValue]:
    """The values before the win of those knobs that still stand where it put them and may go back; all or none."""
    was, present = defaults(before), defaults(now)
    values = {
        name: was[name]
        for name, value in won.items()
        if name in was and present.get(name) == value != was[name] and contains(now[name], was[name])
    }
    return {} if broken_constraint(now, values) else values


def _knobs(files: Mapping[str, str]) -> Knobs:
    try:
        return parse_knobs(files.get(KNOBS_FILE, ""), Path(KNOBS_FILE))
    except CaseError:
        return {}
