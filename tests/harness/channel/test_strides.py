"""Strides: what is C-contiguous, dense or overlapping, held against the places of all elements."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.channel.strides import (
    are_contiguous,
    are_dense,
    contiguous_strides,
    do_overlap,
    element_span,
    same_strides,
)

Shape = tuple[int, ...]


@st.composite
def strided(draw: st.DrawFn) -> tuple[Shape, Shape]:
    shape = draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    return shape, tuple(draw(st.integers(0, 12)) for _ in shape)


def places(shape: Shape, strides: Shape) -> list[int]:
    indices = itertools.product(*map(range, shape))
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in indices]


@given(strided())
def test_overlaps_spans_and_density_are_those_of_the_places(given: tuple[Shape, Shape]) -> None:
    found = places(*given)
    assert do_overlap(*given) == (len(set(found)) < len(found))
    assert element_span(*given) == (max(found) + 1 if found else 0)
    assert are_dense(*given) == (sorted(found) == list(range(len(found))))
    assert are_contiguous(*given) == (found == list(range(len(found))))


@given(strided())
def test_contiguous_strides_are_torchs(given: tuple[Shape, Shape]) -> None:
    shape, strides = given
    own = contiguous_strides(shape)
    assert places(shape, own) == list(range(math.prod(shape)))
    assert are_contiguous(shape, strides) == torch.empty(999).as_strided(shape, strides).is_contiguous()
    if math.prod(shape):
        assert same_strides(shape, strides, own) == are_contiguous(shape, strides)


def test_large_arrays_are_told_quickly() -> None:
    assert not do_overlap((4096, 4096), (1, 4096))
    assert do_overlap((4096, 4096), (0, 1))
    assert not do_overlap((1000, 999), (1000, 1001)), "interlaced, and yet no two at one place"
