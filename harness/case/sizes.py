"""The sizes of a problem, and how far each is from a whole number of the tiles that kernels work in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TILES = (32, 16, 8)
"""Edges of the tiles that a kernel may work in: the largest of them that is not above a size, or one less."""


Place = tuple[str, int]
"""A size of a problem: its name, and which one in a list of them."""


def tile_of(size: int) -> int:
    """The edge of the tiles that a size is told by; 0 for one that is smaller than all of them."""
    return next((tile for tile in TILES if size >= tile - 1), 0)


def remainder_of(size: int) -> int | None:
    """-1, 0 or 1 of a size so far from a whole number of tiles; None of another one."""
    tile = tile_of(size)
    rest = (size + 1) % tile - 1 if tile else None
    return rest if rest in (-1, 0, 1) else None


def sizes_of(problem: Mapping[str, Any]) -> dict[Place, int]:
    """The whole numbers of a problem, those in its lists included."""
    return {
        (key, place): size
        for key, value in problem.items()
        for place, size in enumerate(parts_of(value))
        if type(size) is int
    }


def parts_of(value: object) -> Sequence[object]:
    """What a list holds; of anything else, that."""
    return value if isinstance(value, list | tuple) else (value,)
