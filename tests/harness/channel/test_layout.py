"""What lies in a slot, and what crosses to the candidate with it."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Spec
from hillclimb.harness.channel.layout import GUARD, SlotLayout, lay_out
from hillclimb.harness.duel.process.arena import shapes_of

DTYPES = [torch.float32, torch.int8, torch.float64, torch.bool]


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A permuted slice of a dense tensor: gaps, empty and 0-d ones included."""
    wide = draw(st.lists(st.integers(1, 5), max_size=3))
    tensor = torch.zeros(wide, dtype=draw(st.sampled_from(DTYPES)))
    for dim, size in enumerate(wide):
        start = draw(st.integers(0, size))
        tensor = tensor.narrow(dim, start, draw(st.integers(0, size - start)))
    return tensor.permute(draw(st.permutations(range(len(wide)))))


def crossed(layout: SlotLayout) -> SlotLayout:
    return SlotLayout.from_json(json.loads(json.dumps(layout.to_json())))


def test_attributes_cross_as_they_are() -> None:
    told = {
        "stride": (2, (1, 3)),
        "window": None,
        "low": -math.inf,
        "causal": True,
        "name": "mean",
        "scale": 0.5,
    }
    layout = lay_out([("x", (2,), "float32")], [("y", (2,), "float32")], 1, told)
    assert crossed(layout).attributes == told


@given(st.lists(views(), max_size=3), st.lists(views(), max_size=3), st.integers(1, 3))
def test_strided_arrays_never_overlap_are_guarded_and_cross(
    ins: list[torch.Tensor], outs: list[torch.Tensor], slots: int
) -> None:
    inputs = shapes_of({f"i{n}": tensor for n, tensor in enumerate(ins)})
    outputs = shapes_of({f"o{n}": tensor for n, tensor in enumerate(outs)})
    layout = lay_out(inputs, outputs, slots, partial=["o0"])
    assert crossed(layout) == layout
    position = 0
    for array, tensor in zip((*layout.inputs, *layout.outputs), (*ins, *outs), strict=True):
        assert array.offset >= position + GUARD
        held = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        assert array.nbytes == (held * tensor.itemsize if tensor.numel() else 0)
        assert (array.strides is None) == tensor.is_contiguous()
        position = array.offset + array.nbytes
    assert layout.stride >= position + GUARD
    assert sum(e - s for s, e in layout.guards()) + sum(
        a.nbytes for a in (*layout.inputs, *layout.outputs)
    ) == (layout.stride)


def test_an_output_that_is_an_input_is_handed_over_once() -> None:
    inputs = [("x", (4,), "float32"), ("at", (), "int64")]
    layout = lay_out(inputs, [("y", (2,), "float32"), ("x", (4,), "float32")], 1)
    assert [array.name for array in (*layout.inputs, *layout.outputs)] == ["x", "at", "y"]
    assert [array.name for array in layout.changed] == ["x"]
    assert layout.results == ("y", "x")
    assert crossed(layout) == layout


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (torch.zeros(3, 4), ("a", (3, 4), "float32")),
        (torch.zeros(3, 4).T, ("a", (4, 3), "float32", (1, 4))),
        (torch.zeros(3, 1).T, ("a", (1, 3), "float32")),
        (torch.zeros(()), ("a", (), "float32")),
        (torch.zeros(0, 4).T, ("a", (4, 0), "float32")),
        (Spec((3, 4), torch.int8), ("a", (3, 4), "int8")),
        (Spec((3, 4), torch.int8, strides=(4, 1)), ("a", (3, 4), "int8")),
        (Spec((3, 4), torch.int8, strides=(1, 3)), ("a", (3, 4), "int8", (1, 3))),
    ],
)
def test_strides_are_told_where_an_array_is_not_contiguous(one: torch.Tensor | Spec, shape: object) -> None:
    assert shapes_of({"a": one}) == [shape]
