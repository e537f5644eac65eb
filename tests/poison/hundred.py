"""The poisoned kernels of each surface, and the few that stand for their kinds where all would cost too much."""

from __future__ import annotations

from functools import cache

from tests.poison.device import device_poisons
from tests.poison.host import host_poisons
from tests.poison.poison import Poison, Surface, When

CHEAPEST: tuple[When, ...] = ("later", "always", "first", "thread", "import", "timed")


@cache
def poisons(surface: Surface) -> tuple[Poison, ...]:
    """Every one for a surface, kind by kind."""
    return (*host_poisons(surface), *(device_poisons() if surface == "gpu" else ()))


def representatives(surface: Surface) -> tuple[Poison, ...]:
    """One of each kind, and where there is a choice one that costs little: taken in a call that has a call's budget."""
    kinds = dict.fromkeys(poison.kind for poison in poisons(surface))
    return tuple(min(_of(kind, surface), key=lambda poison: CHEAPEST.index(poison.when)) for kind in kinds)


def _of(kind: str, surface: Surface) -> list[Poison]:
    return [poison for poison in poisons(surface) if poison.kind == kind]
