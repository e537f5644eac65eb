"""The mixed proposer: the sweep, the editor and re-ablation take turns as the rhythm says, in one climb.

The editor exposes knobs, the sweep tunes them, re-ablation clears up. While the editor is still thinking, the sweep
fills the time. Every change of phase is a `turned` line of the ledger, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import NotReady, Proposer, peek, why_no_importances
from hillclimb.agent.record.entries import Phase, TurnedEntry
from hillclimb.agent.rhythm.rhythm import PhaseChange, next_phase
from hillclimb.agent.rhythm.rules import RhythmRules
from hillclimb.agent.screen.events import TurnedEvent
from hillclimb.agent.sweep.retune import RetuneFirst
from hillclimb.harness.errors import Plateau

if TYPE_CHECKING:
    from hillclimb.agent.proposer import ProposerContext
    from hillclimb.agent.record.ledger import Ledger

SWEEP_EXHAUSTED = "every knob configuration worth trying on this source was tried"
NO_KNOBS = "the case has no knobs"
ABLATION_EXHAUSTED = "no older win is left that can be taken out"
EDITOR_EXHAUSTED = "the editor has no ideas left"


class EditProposer(Protocol):
    """Whoever proposes edits, of one family at a time."""

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | NotReady | None:
        """The next edit; Later while it is being thought of. None, or Plateau raised, where none will come any more.

        `family` empty leaves the kind of change open; `reason` says why the block is about it.
        """

    def is_ready(self, ledger: Ledger) -> bool:
        """Whether propose has something to say at once."""

    @property
    def is_down(self) -> bool:
        """Whether it gets nowhere at the moment, such as a model whose endpoint does not answer."""

    def finish(self, ledger: Ledger) -> None:
        """The climb ends here."""


class MixedProposer:
    """Implements hillclimb.agent.proposer.Proposer over the three."""

    def __init__(
        self,
        background: ProposerContext,
        sweep: Proposer,
        editor: EditProposer,
        ablation: Proposer,
        rules: RhythmRules | None = None,
    ) -> None:
        """Without `rules`, the usual ones at the case's minimum effect."""
        effect = background.case.settings.objective.minimum_effect
        self._background, self._rules = background, rules or RhythmRules(minimum_effect=effect)
        self._sweep = RetuneFirst(background.case.knobs, background.seed, sweep)
        self._editor, self._ablation = editor, ablation
        self._edit_stop_reason = ""
        """Why no edit will come any more; empty while they do."""
        self._is_thinking = False
        """Whether the editor was asked and has not answered yet."""
        self._awaits_profile = False
        """Whether it would have been asked, had the incumbent been profiled."""

    def propose(self, ledger: Ledger) -> Proposal | NotReady | None:
        """The next proposal of the phase the run is in, or of the one it is time for.

        Raises Plateau, saying why of each, when no phase has anything left.
        """
        self._awaits_profile = False
        shut: dict[Phase, str] = {"edit": self._edit_stop_reason} if self._edit_stop_reason else {}
        while len(shut) < 3:
            turn = next_phase(ledger, self._rules, shut)
            phase = turn.phase if turn else ledger.turns[-1].phase
            found = self._ask(phase, turn, ledger)
            if not isinstance(found, str):
                return found
            shut[phase] = found
        raise Plateau("; ".join(shut[phase] for phase in ("sweep", "edit", "ablate")))

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """What the phase foresees that it is time for; in an edit block, edits and then what fills it."""
        phase = self._expected_phase(ledger)
        if phase is None:
            return ()
        if phase == "ablate":
            return peek(self._ablation, ledger, count)
        edits = peek(self._editor, ledger, count) if phase == "edit" else ()
        return (*edits, *peek(self._sweep, ledger, count - len(edits)))

    def reads_profile(self, ledger: Ledger) -> bool:
        """The editor does, when it is asked and not while it thinks."""
        return self._awaits_profile or (
            self._expected_phase(ledger) == "edit" and self._can_ask_editor(ledger)
        )

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """The sweep's."""
        return self._sweep.importances(ledger)

    def why_no_importances(self, ledger: Ledger) -> str:
        """See hillclimb.agent.proposer.ExplainsImportances."""
        return why_no_importances(self._sweep, ledger)

    def finish(self, ledger: Ledger) -> None:
        """Whoever has something under way gives it up."""
        for proposer in (self._editor, self._sweep, self._ablation):
            proposer.finish(ledger)

    def _expected_phase(self, ledger: Ledger) -> Phase | None:
        """That it is time for, as far as can be foreseen."""
        shut: dict[Phase, str] = {"edit": self._edit_stop_reason} if self._edit_stop_reason else {}
        turn = next_phase(ledger, self._rules, shut)
        if turn is None and not ledger.turns:
            return None
        return turn.phase if turn else ledger.turns[-1].phase

    def _ask(self, phase: Phase, turn: PhaseChange | None, ledger: Ledger) -> Proposal | NotReady | str:
        """What the phase proposes, the turn to it written down; or why it proposes nothing."""
        if phase == "edit":
            self._awaits_profile = (
                bool(ledger.profiles) and not ledger.is_profiled and self._can_ask_editor(ledger)
            )
            if self._awaits_profile:
                return NotReady(seconds=0.0)
            self._record_turn(turn, ledger)
            return self._ask_editor(ledger)
        swept = SWEEP_EXHAUSTED if self._background.case.knobs or ledger.wins else NO_KNOBS
        proposer, otherwise = (
            (self._sweep, swept) if phase == "sweep" else (self._ablation, ABLATION_EXHAUSTED)
        )
        try:
            found = proposer.propose(ledger)
        except Plateau as over:
            return str(over)
        if found is None:
            return otherwise
        self._record_turn(turn, ledger)
        return found

    def _ask_editor(self, ledger: Ledger) -> Proposal | NotReady | str:
        """Its next edit; while it thinks, something to fill the time."""
        if not self._can_ask_editor(ledger):
            filling = self._propose_filler(ledger)
            if filling:
                return filling
        present = ledger.turns[-1]
        try:
            found = self._editor.propose(ledger, present.family, present.reason)
        except Plateau as over:
            found, self._edit_stop_reason = None, str(over)
        self._is_thinking = isinstance(found, NotReady)
        if found is None:
            self._edit_stop_reason = self._edit_stop_reason or EDITOR_EXHAUSTED
            return self._edit_stop_reason
        return (self._propose_filler(ledger) or found) if self._is_thinking else found

    def _can_ask_editor(self, ledger: Ledger) -> bool:
        return not self._is_thinking or self._editor.is_ready(ledger)

    def _propose_filler(self, ledger: Ledger) -> Proposal | None:
        """A sweep candidate in an edit block, as long as few enough were; any number while no edit can come."""
        with suppress(Plateau):
            return self._propose_while_thinking(ledger)
        return None

    def _propose_while_thinking(self, ledger: Ledger) -> Proposal | None:
        if self._editor.is_down:
            return self._sweep.propose(ledger)
        inside = ledger.candidates[ledger.turns[-1].n - 1 :]
        filled = sum(1 for candidate in inside if candidate.proposal.author == "sweep")
        return self._sweep.propose(ledger) if filled < self._rules.max_fillers else None

    def _record_turn(self, turn: PhaseChange | None, ledger: Ledger) -> None:
        """Write a turn down and tell whoever watches."""
        if turn is None:
            return
        now = self._background.clock.now()
        line = TurnedEntry(
            time=now,
            n=len(ledger.candidates) + 1,
            phase=turn.phase,
            family=turn.family,
            reason=turn.reason,
            signals=turn.signals,
        )
        ledger.append(line)
        self._background.emit(TurnedEvent.of(line))
