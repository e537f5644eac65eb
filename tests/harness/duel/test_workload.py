"""What is read when the clock stops, and compared later."""

from __future__ import annotations

import pytest
import torch

from hillclimb.harness.channel.layout import lay_out
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.workload import OutputProbe
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

SLOTS = 6


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
@pytest.mark.parametrize("at", [0.0, 0.5, 0.999])
def test_an_output_that_changes_after_the_clock_stopped_is_found(dtype: str, at: float) -> None:
    arena = Arena(lay_out([("x", (3,), "float32")], [("y", (5, 4), dtype), ("z", (2,), "float32")], SLOTS))
    for slot in range(SLOTS):
        for tensor in arena.outputs(slot).values():
            tensor.fill_(1)
    probe = OutputProbe(arena.words(range(SLOTS), at))
    probe.read()
    assert probe.unwritten_slot is None
    assert probe.changed_row() is None
    arena.inputs(2)["x"].fill_(5)
    assert probe.changed_row() is None
    probe.require_unchanged("odd")
    arena.outputs(4)["y"].fill_(0)
    assert probe.changed_row() == 4
    with pytest.raises(CandidateFault, match="problem odd: the output of call 5") as caught:
        probe.require_unchanged("odd")
    assert caught.value.reason is Reason.LEFT_WORK_RUNNING
    arena.outputs(1)["z"].fill_(float("nan"))
    assert probe.changed_row() in (1, 4)
    arena.close()


def test_poison_that_stays_is_no_change() -> None:
    """It is not a number, but its bits are the same."""
    arena = Arena(lay_out([("x", (3,), "float32")], [("y", (7,), "float32")], SLOTS))
    arena.poison(range(SLOTS))
    probe = OutputProbe(arena.words(range(SLOTS), 0.3))
    probe.read()
    assert probe.unwritten_slot == 0
    assert probe.changed_row() is None
    arena.outputs(0)["y"].copy_(torch.zeros(7))
    assert probe.changed_row() == 0
    arena.close()


def test_what_was_not_read_has_not_changed() -> None:
    probe = OutputProbe([])
    assert probe.changed_row() is None
    probe.read()
    assert (probe.unwritten_slot, probe.changed_row()) == (None, None)
