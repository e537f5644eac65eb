"""Shared buffers: arrays apart, poison seen, guards seen, the size sealed."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.candidate.slots import numpy_slots
from hillclimb.harness.channel.layout import GUARD, SlotLayout, lay_out
from hillclimb.harness.duel.process.arena import Arena, first_poisoned

shapes = st.lists(
    st.tuples(
        st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
        st.sampled_from(["float32", "int64", "uint8"]),
    ),
    min_size=1,
    max_size=4,
)


def _arena(slots: int = 2) -> Arena:
    return Arena(lay_out([("x", (5,), "float32")], [("y", (3, 2), "float32")], slots))


@given(shapes, shapes, st.integers(1, 4))
def test_arrays_never_overlap_and_are_guarded(ins: list, outs: list, slots: int) -> None:
    layout = lay_out([("i", *s) for s in ins], [("o", *s) for s in outs], slots)
    position = 0
    for array in (*layout.inputs, *layout.outputs):
        assert array.offset >= position + GUARD
        position = array.offset + array.nbytes
    assert layout.stride >= position + GUARD
    covered = sum(end - start for start, end in layout.guards())
    assert covered + sum(a.nbytes for a in (*layout.inputs, *layout.outputs)) == layout.stride


def test_layouts_survive_json() -> None:
    layout = lay_out([("x", (5,), "float32")], [("y", (3, 2), "float64")], 2)
    assert SlotLayout.from_json(layout.to_json()) == layout


def test_both_sides_see_the_same_memory() -> None:
    arena = _arena()
    theirs = numpy_slots(os.dup(arena.descriptor), arena.layout).arguments
    arena.fill(1, {"x": torch.arange(5.0)})
    assert theirs[1][0].tolist() == [0, 1, 2, 3, 4]
    theirs[1][1][:] = 7
    assert arena.outputs(1)["y"].eq(7).all()


def test_poison_is_seen_until_every_element_is_written() -> None:
    arena = _arena()
    arena.poison(range(1))
    assert arena.first_unwritten_slot(range(1)) == 0
    arena.outputs(0)["y"].view(-1)[:-1] = 1.0
    assert arena.first_unwritten_slot(range(1)) == 0
    arena.outputs(0)["y"].fill_(float("nan"))
    assert arena.first_unwritten_slot(range(1)) is None, "an honest NaN is not the poison"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_poison_is_told_from_every_other_number(dtype: str) -> None:
    arena = Arena(lay_out([("x", (5,), "float32")], [("y", (7,), dtype)], 3))
    arena.poison(range(3))
    for slot in range(3):
        arena.outputs(slot)["y"].copy_(torch.tensor([1.0, -2.0, 0.0, 3.0, -0.0, 0.5, 2.0]))
    if dtype != "float8_e4m3fn":
        arena.outputs(1)["y"][:2] = torch.tensor([float("inf"), float("-inf")])
        assert arena.first_unwritten_slot(range(3)) is None, "infinities that cancel are not the poison"
    arena.outputs(2)["y"][6:].view(torch.uint8).fill_(0xFF)
    assert arena.first_unwritten_slot(range(3)) == 2
    assert arena.first_unwritten_slot(range(2)) is None


@pytest.mark.parametrize("at", [0.0, 0.5, 0.999])
def test_a_word_of_each_output_tells_the_first_call_that_is_missing(at: float) -> None:
    shapes = [("y", (4,), "float32"), ("n", (2,), "int32"), ("h", (3,), "bfloat16")]
    arena = Arena(lay_out([("x", (2,), "float32")], shapes, 5))
    arena.poison(range(5))
    for slot in range(5):
        arena.outputs(slot)["n"].fill_(-1)  # a whole number may be what the poison is
    for slot in (0, 1, 3):
        arena.outputs(slot)["y"].fill_(1)
    for slot in (0, 1, 2, 3, 4):
        arena.outputs(slot)["h"].fill_(2)
    assert first_poisoned(arena.words(range(5), at)) == 2
    assert first_poisoned(arena.words(range(3, 4), at)) is None
    assert first_poisoned(arena.words(range(3, 5), at)) == 1, "counted from the first of those asked about"
    arena.poison(range(1, 2))
    assert first_poisoned(arena.words(range(5), at)) == 1
    assert first_poisoned([]) is None


def test_the_first_unwritten_slot_is_named() -> None:
    arena = _arena(slots=5)
    arena.poison(range(1, 5))
    for slot in (1, 2, 4):
        arena.outputs(slot)["y"].fill_(1.0)
    assert arena.first_unwritten_slot(range(1, 5)) == 3
    assert arena.first_unwritten_slot(range(1, 3)) is None


@pytest.mark.parametrize("offset", [-1, 6 * 4])
def test_a_write_beside_an_array_is_seen(offset: int) -> None:
    arena = _arena()
    assert arena.has_intact_guards()
    start = arena.layout.stride + arena.layout.outputs[0].offset + offset
    was = os.pread(arena.descriptor, 1, start)
    os.pwrite(arena.descriptor, bytes([was[0] ^ 1]), start)
    assert not arena.has_intact_guards()


def test_nobody_can_resize_the_memory() -> None:
    arena = _arena()
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, 1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64"])
def test_poison_without_a_nan_is_never_what_it_was(dtype: str) -> None:
    arena = Arena(lay_out([], [("n", (64,), dtype)], slots=2))
    seen = set()
    for _ in range(40):
        arena.poison(range(2))
        found = arena.outputs(1)["n"]
        assert torch.equal(found, arena.outputs(0)["n"])
        assert dtype != "bool" or found.view(torch.uint8).max() <= 1
        seen.add(tuple(found.tolist()))
    assert len(seen) > 20
