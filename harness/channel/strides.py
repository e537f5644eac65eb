"""Strides of arrays, in elements: which are C-contiguous, which leave no gap, which lie over each other. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

Shape = tuple[int, ...]


def contiguous_strides(shape: Shape) -> Shape:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def are_contiguous(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie in C order without gaps; where there is one index at most, its stride says nothing."""
    return not math.prod(shape) or same_strides(shape, strides, contiguous_strides(shape))


def same_strides(shape: Shape, one: Shape, other: Shape) -> bool:
    """Whether both put every element at the same place."""
    return all(a == b for size, a, b in zip(shape, one, other, strict=True) if size > 1)


def are_dense(shape: Shape, strides: Shape) -> bool:
    """Whether the elements fill their memory once, the dimensions in whatever order."""
    expected = 1
    for stride, size in sorted(_steps(shape, strides)):
        if stride != expected:
            return False
        expected *= size
    return True


def element_span(shape: Shape, strides: Shape) -> int:
    """Elements from the first to the last, gaps included."""
    if not math.prod(shape):
        return 0
    return 1 + sum((size - 1) * stride for stride, size in _steps(shape, strides))


@lru_cache(maxsize=256)
def do_overlap(shape: Shape, strides: Shape) -> bool:
    """Whether two elements lie at one place."""
    span = 0
    for stride, size in sorted(_steps(shape, strides)):
        if stride <= span:
            return not _are_distinct(shape, strides)
        span += stride * (size - 1)
    return False


def _are_distinct(shape: Shape, strides: Shape) -> bool:
    """By the places themselves: a set of them is a number with one bit for each."""
    places = 1
    for stride, size in _steps(shape, strides):
        places = _repeat(places, size, stride)
    return places.bit_count() == math.prod(shape)


def _repeat(places: int, count: int, stride: int) -> int:
    """The places, and all of them 1 to count - 1 strides further on."""
    if count == 1:
        return places
    half = _repeat(places, count // 2, stride)
    both = half | half << count // 2 * stride
    return both | places << (count - 1) * stride if count % 2 else both


def _steps(shape: Shape, strides: Shape) -> Iterator[tuple[int, int]]:
    """(stride, size) of each dimension that is stepped along; none of an empty array."""
    if math.prod(shape):
        yield from ((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1)
