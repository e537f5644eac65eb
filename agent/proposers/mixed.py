"""The mixed proposer: the sweep, the editor and re-ablation take turns as the rhythm says, in one climb.

The editor exposes knobs, the sweep tunes them, re-ablation clears up. While the editor is still thinking, the sweep
fills the time. Every change of phase is a `turned` line of the ledger, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from agent.entries import Phase, Turned
from agent.events import TurnedEvent
from agent.proposal import Later, Proposal, Proposer, peek
from agent.proposers.retune import Retuned
from agent.rhythm.rhythm import Turn, next_turn
from agent.rhythm.rules import Rules
from harness.errors import Plateau

if TYPE_CHECKING:
    from agent.background import Background
    from agent.ledger import Ledger

SWEPT = "every knob configuration worth trying on this source was tried"
KNOBLESS = "the case has no knobs"
CHECKED = "no older win is left that can be taken out"
SILENT = "the editor has no ideas left"


class Editor(Protocol):
    """Whoever proposes edits, of one family at a time."""

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | Later | None:
        """The next edit; Later while it is being thought of. None, or Plateau raised, where none will come any more.

        `family` empty leaves the kind of change open; `reason` says why the block is about it.
        """

    def ready(self, ledger: Ledger) -> bool:
        """Whether propose has something to say at once."""

    @property
    def is_down(self) -> bool:
        """Whether it gets nowhere at the moment, such as a model whose endpoint does not answer."""

    def finish(self, ledger: Ledger) -> None:
        """The climb ends here."""


class Mixed:
    """Implements agent.proposal.Proposer over the three."""

    def __init__(
        self,
        background: Background,
        sweep: Proposer,
        edit: Editor,
        ablation: Proposer,
        rules: Rules | None = None,
    ) -> None:
        """Without `rules`, the usual ones at the case's minimum effect."""
        effect = background.case.settings.objective.minimum_effect
        self._background, self._rules = background, rules or Rules(minimum_effect=effect)
        self._sweep = Retuned(background.case.knobs, background.seed, sweep)
        self._edit, self._ablation = edit, ablation
        self._edits_over = ""
        """Why no edit will come any more; empty while they do."""
        self._thinking = False
        """Whether the editor was asked and has not answered yet."""
        self._waits = False
        """Whether it would have been asked, had the incumbent been profiled."""

    def propose(self, ledger: Ledger) -> Proposal | Later | None:
        """The next proposal of the phase the run is in, or of the one it is time for.

        Raises Plateau, saying why of each, when no phase has anything left.
        """
        self._waits = False
        shut: dict[Phase, str] = {"edit": self._edits_over} if self._edits_over else {}
        while len(shut) < 3:
            turn = next_turn(ledger, self._rules, shut)
            phase = turn.phase if turn else ledger.turns[-1].phase
            found = self._ask(phase, turn, ledger)
            if not isinstance(found, str):
                return found
            shut[phase] = found
        raise Plateau("; ".join(shut[phase] for phase in ("sweep", "edit", "ablate")))

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """What the phase foresees that it is time for; in an edit block, edits and then what fills it."""
        phase = self._phase(ledger)
        if phase is None:
            return ()
        if phase == "ablate":
            return peek(self._ablation, ledger, count)
        edits = peek(self._edit, ledger, count) if phase == "edit" else ()
        return (*edits, *peek(self._sweep, ledger, count - len(edits)))

    def reads_profile(self, ledger: Ledger) -> bool:
        """The editor does, when it is asked and not while it thinks."""
        return self._waits or (self._phase(ledger) == "edit" and self._is_to_ask(ledger))

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """The sweep's."""
        return self._sweep.importances(ledger)

    def finish(self, ledger: Ledger) -> None:
        """Whoever has something under way gives it up."""
        for proposer in (self._edit, self._sweep, self._ablation):
            proposer.finish(ledger)

    def _phase(self, ledger: Ledger) -> Phase | None:
        """That it is time for, as far as can be foreseen."""
        shut: dict[Phase, str] = {"edit": self._edits_over} if self._edits_over else {}
        turn = next_turn(ledger, self._rules, shut)
        if turn is None and not ledger.turns:
            return None
        return turn.phase if turn else ledger.turns[-1].phase

    def _ask(self, phase: Phase, turn: Turn | None, ledger: Ledger) -> Proposal | Later | str:
        """What the phase proposes, the turn to it written down; or why it proposes nothing."""
        if phase == "edit":
            self._waits = bool(ledger.profiles) and not ledger.is_profiled and self._is_to_ask(ledger)
            if self._waits:
                return Later(seconds=0.0)
            self._enter(turn, ledger)
            return self._ask_editor(ledger)
        swept = SWEPT if self._background.case.knobs or ledger.wins else KNOBLESS
        proposer, otherwise = (self._sweep, swept) if phase == "sweep" else (self._ablation, CHECKED)
        found = proposer.propose(ledger)
        if found is None:
            return otherwise
        self._enter(turn, ledger)
        return found

    def _ask_editor(self, ledger: Ledger) -> Proposal | Later | str:
        """Its next edit; while it thinks, something to fill the time."""
        if not self._is_to_ask(ledger):
            filling = self._fill(ledger)
            if filling:
                return filling
        present = ledger.turns[-1]
        try:
            found = self._edit.propose(ledger, present.family, present.reason)
        except Plateau as over:
            found, self._edits_over = None, str(over)
        self._thinking = isinstance(found, Later)
        if found is None:
            self._edits_over = self._edits_over or SILENT
            return self._edits_over
        return (self._fill(ledger) or found) if self._thinking else found

    def _is_to_ask(self, ledger: Ledger) -> bool:
        return not self._thinking or self._edit.ready(ledger)

    def _fill(self, ledger: Ledger) -> Proposal | None:
        """A sweep candidate in an edit block, as long as few enough were; any number while no edit can come."""
        if self._edit.is_down:
            return self._sweep.propose(ledger)
        inside = ledger.candidates[ledger.turns[-1].n - 1 :]
        filled = sum(1 for candidate in inside if candidate.proposal.author == "sweep")
        return self._sweep.propose(ledger) if filled < self._rules.fill else None

    def _enter(self, turn: Turn | None, ledger: Ledger) -> None:
        """Write a turn down and tell whoever watches."""
        if turn is None:
            return
        now = self._background.clock.now()
        line = Turned(
            time=now,
            n=len(ledger.candidates) + 1,
            phase=turn.phase,
            family=turn.family,
            reason=turn.reason,
            signals=turn.signals,
        )
        ledger.append(line)
        self._background.emit(TurnedEvent.of(line))
