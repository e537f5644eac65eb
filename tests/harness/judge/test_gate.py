"""What the gate says of a GPU's memory; the gate at work is in test_judge.py and, on a GPU, in tests/poison."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import CandidateFault, MachineError
from harness.judge.gate import check_hoard
from harness.records import Reason

GIB = 1 << 30


class Card:
    """A GPU of which a candidate and somebody else hold something."""

    def __init__(self, candidate: int, other: int) -> None:
        self.candidate, self.other = candidate * GIB, other * GIB

    def spare(self) -> int:
        return 140 * GIB - self.candidate - self.other

    def close(self) -> None:
        """The candidate's end."""
        self.candidate = 0


def look(card: Any) -> None:
    check_hoard(card, 140 * GIB, card.spare)


def test_a_candidate_may_keep_half_of_the_memory() -> None:
    card = Card(candidate=70, other=0)
    look(card)
    assert card.candidate, "it is not ended"


def test_a_candidate_that_keeps_more_is_refused_by_name() -> None:
    with pytest.raises(CandidateFault, match="keeps 100 of the GPU's 140 GiB") as fault:
        look(Card(candidate=100, other=0))
    assert fault.value.reason is Reason.OUT_OF_MEMORY


def test_what_somebody_else_took_is_not_held_against_a_candidate() -> None:
    with pytest.raises(MachineError, match="something else on this machine took 101 of the GPU's 140 GiB"):
        look(Card(candidate=1, other=100))
