"""How far a size is from a whole number of the tiles that kernels work in."""

from __future__ import annotations

TILES = (32, 16, 8)
"""Edges of the tiles that a kernel may work in: the largest of them that is not above a size, or one less."""


def tile_of(size: int) -> int:
    """The edge of the tiles that a size is told by; 0 for one that is smaller than all of them."""
    return next((tile for tile in TILES if size >= tile - 1), 0)


def remainder_of(size: int) -> int | None:
    """-1, 0 or 1 of a size so far from a whole number of tiles; None of another one."""
    tile = tile_of(size)
    rest = (size + 1) % tile - 1 if tile else None
    return rest if rest in (-1, 0, 1) else None
