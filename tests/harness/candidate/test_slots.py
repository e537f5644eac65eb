"""Slots as a kernel on the host is handed them: NumPy and torch see the same bytes of the judge's arena, all dtypes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.candidate.slots import HostSlots, numpy_slots, torch_slots
from hillclimb.harness.channel.dtypes import ITEM_BYTES, NUMPY_DTYPES, TORCH_DTYPES
from hillclimb.harness.channel.layout import ALIGNMENT, SlotLayout, lay_out
from hillclimb.harness.duel.process.arena import Arena

Views = Callable[[int, SlotLayout], HostSlots]

VALUES = [0, 1, 2, 3, 0, 1, 2, 4]
"""The same in every dtype but bool, float8 included."""

arrays = st.lists(
    st.tuples(
        st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple), st.sampled_from(sorted(TORCH_DTYPES))
    ),
    min_size=1,
    max_size=3,
)


def mapped(arena: Arena, views: Views = torch_slots) -> HostSlots:
    return views(os.dup(arena.descriptor), arena.layout)


def arena_of(dtype: str, slots: int = 2) -> Arena:
    return Arena(lay_out([("x", (2, 4), dtype)], [("y", (4,), dtype)], slots))


def of(dtype: str, values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).to(getattr(torch, dtype))


def test_torchs_dtypes_are_as_wide_as_the_table_says() -> None:
    widths = {name: getattr(torch, name).itemsize for name in TORCH_DTYPES}
    assert widths == ITEM_BYTES


@pytest.mark.parametrize("dtype", sorted(TORCH_DTYPES))
def test_a_kernel_that_takes_tensors_sees_what_the_judge_wrote(dtype: str) -> None:
    arena = arena_of(dtype)
    values = of(dtype, VALUES).view(2, 4)
    arena.fill(1, {"x": values})
    x, y = mapped(arena).arguments[1]
    assert (x.dtype, y.dtype) == (values.dtype, values.dtype)
    assert (x.shape, y.shape) == ((2, 4), (4,))
    assert torch.equal(x.view(torch.uint8), values.view(torch.uint8))
    y.copy_(x[1])
    written = arena.outputs(1)["y"].to(torch.complex64 if x.is_complex() else torch.float32)
    assert written.tolist() == ([0, 1, 1, 1] if dtype == "bool" else [0, 1, 2, 4])
    assert arena.has_intact_guards()


@pytest.mark.parametrize("dtype", sorted(NUMPY_DTYPES))
def test_numpy_and_torch_see_the_same(dtype: str) -> None:
    arena = arena_of(dtype)
    arena.fill(1, {"x": of(dtype, VALUES).view(2, 4)})
    (array, answer), (tensor, result) = mapped(arena, numpy_slots).arguments[1], mapped(arena).arguments[1]
    assert array.dtype.name == dtype
    assert array.flags.c_contiguous
    assert array.tolist() == tensor.tolist()
    answer[:] = array[1]
    assert result.tolist() == answer.tolist() == arena.outputs(1)["y"].tolist()
    result.zero_()
    assert not answer.any()


@given(arrays, arrays, st.integers(1, 3), st.data())
@settings(max_examples=60)
def test_what_is_written_to_one_array_is_found_there_and_nowhere_else(
    ins: list[tuple[tuple[int, ...], str]],
    outs: list[tuple[tuple[int, ...], str]],
    slots: int,
    data: st.DataObject,
) -> None:
    layout = lay_out(
        [(f"i{n}", *s) for n, s in enumerate(ins)], [(f"o{n}", *s) for n, s in enumerate(outs)], slots
    )
    arena = Arena(SlotLayout.from_json(layout.to_json()))
    theirs = mapped(arena).arguments
    ours = [[*arena.inputs(slot).values(), *arena.outputs(slot).values()] for slot in range(slots)]
    for tensor in (tensor for slot in theirs for tensor in slot):
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % ALIGNMENT == 0
        tensor.view(torch.uint8).zero_()
    slot = data.draw(st.integers(0, slots - 1))
    number = data.draw(st.integers(0, len(ins) + len(outs) - 1))
    theirs[slot][number].view(torch.uint8).fill_(0x5A)
    found = {
        (s, n)
        for s, tensors in enumerate(ours)
        for n, tensor in enumerate(tensors)
        if tensor.contiguous().view(torch.uint8).any()
    }
    assert found == {(slot, number)}
    assert bool((ours[slot][number].view(torch.uint8) == 0x5A).all())
    assert arena.has_intact_guards()
    arena.close()


@pytest.mark.parametrize("views", [numpy_slots, torch_slots])
def test_calls_go_over_a_run_of_slots_in_order(views: Views) -> None:
    arena = arena_of("float32", slots=6)
    for slot in range(6):
        arena.fill(slot, {"x": torch.full((2, 4), float(slot))})
    slots, seen = mapped(arena, views), []

    def kernel(x: Any, y: Any) -> None:
        seen.append(float(x[0, 0]))
        y[:] = x[0]

    slots.capture(kernel, 0, 6)
    assert seen == [], "there is nothing to capture on the host"
    assert slots.call(kernel, 1, 3) > 0
    assert slots.launch(kernel, 4, 2) > 0
    assert seen == [1, 2, 3, 4, 5]
    assert slots.launch(kernel, 4, 1, 2) > 0
    assert seen[5:] == [2, 3, 4], "what feeds the timed call comes just before it"
    assert [float(arena.outputs(slot)["y"][0]) for slot in range(1, 6)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("views", [numpy_slots, torch_slots])
def test_closed_slots_let_go_of_the_memory(views: Views) -> None:
    arena = arena_of("float32")
    before = mappings()
    descriptor = os.dup(arena.descriptor)
    slots = views(descriptor, arena.layout)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert mappings() == before + 1
    slots.close()
    assert mappings() == before


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("/memfd:hillclimb-arena")
