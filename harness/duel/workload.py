"""What a duel runs: its settings, and one problem's calls on shared buffers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import torch

from hillclimb.harness.case.contract import Work
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.batches import InputBatches
from hillclimb.harness.duel.inputs import MAX_MIXED, InputSource
from hillclimb.harness.duel.process.arena import Arena, Words, first_poisoned
from hillclimb.harness.duel.process.launch_spec import SegmentPlan
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason


@dataclass(frozen=True)
class DuelSettings:
    """What a duel is fought under, besides problems and sides."""

    device: Device
    segment_seconds: float
    error_budget: float
    cache: Literal["cold", "hot"]
    secret: random.Random
    opponent_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds a call of the last opponent's, by problem: where the next duel's sizing begins."""
    segment_calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Calls of both sides' segments, by problem, as an earlier duel of the same two sides found them."""
    batches: InputBatches = field(default_factory=InputBatches)
    most_mixed: int = MAX_MIXED
    """As InputSource.most_mixed."""

    def reset_device(self) -> None:
        """See to it that every segment starts from the same state: nothing running, and in the cache what is to be."""
        self.device.reset_settings()
        if self.cache == "cold":
            self.device.flush_cache()
        self.device.synchronize()


@dataclass(frozen=True)
class Workload:
    """One timed problem: its slots, and how many calls each side makes in a segment."""

    source: InputSource
    arena: Arena
    calls: tuple[int, int]
    """Of A and of B. Equal unless one side is over twice as fast."""
    lead_in_calls: int
    """Calls of the lead-in; 0 on a CPU."""
    work: Work
    is_solo: bool = False
    """Single calls, whose inputs come after the lead-in: nothing can be done for them beforehand. They are not fed."""

    def segment_plan(self, side: int) -> SegmentPlan:
        return SegmentPlan(self.calls[side], self.lead_in_calls, 0 if self.is_solo else self.lead_in_calls)


@dataclass
class OutputProbe:
    """A word of every call's outputs, looked at before the judge's clock stops for good."""

    words: list[Words]
    unwritten_slot: int | None = None
    """The first slot that carries the poison there."""
    _read: list[torch.Tensor] = field(default_factory=list)

    def read(self) -> None:
        """Copies the words, and looks at the copies: what is compared later is what was seen."""
        self._read = [word.clone() for word, _ in self.words]
        copies = [(copy, can_tell) for copy, (_, can_tell) in zip(self._read, self.words, strict=True)]
        self.unwritten_slot = first_poisoned(copies)

    def require_unchanged(self, problem: str) -> None:
        """Raises CandidateFault where an output is no longer what it was when the clock stopped."""
        row = self.changed_row()
        if row is not None:
            detail = f"problem {problem}: the output of call {row + 1} of a segment changed after the clock had stopped"
            raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)

    def changed_row(self) -> int | None:
        """The first slot, counted from the first that was read, in which a word is no longer what was read."""
        for read, (word, _) in zip(self._read, self.words, strict=False):
            changed = (read != word).flatten()
            if bool(changed.any()):
                return int(changed.nonzero()[0])
        return None
