"""Names of cuBLASLt's algorithms: an answer of its heuristic, as it is or with another tile and cluster set on it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from hillclimb.harness.errors import UsageError

PROVIDER = "cublaslt"

_ids = json.loads(Path(__file__).with_name("cublaslt_ids.json").read_text())
TILES: dict[int, tuple[int, int]] = {int(key): tuple(value) for key, value in _ids["tiles"].items()}
CLUSTERS: dict[int, tuple[int, int]] = {int(key): tuple(value) for key, value in _ids["clusters"].items()}

NAME = re.compile(r"heuristic_(\d+)|(\d+)x(\d+)_(\d+)x(\d+)_of_(\d+)", re.ASCII)


class Algorithm(NamedTuple):
    """Which answer of the heuristic it is, counted from 0, and the ids set on it; 0 leaves the answer's own."""

    answer: int
    tile: int = 0
    cluster: int = 0

    @property
    def name(self) -> str:
        """As results of the provider call it."""
        if not self.tile:
            return f"heuristic_{self.answer}"
        return f"{_sizes(TILES[self.tile])}_{_sizes(CLUSTERS[self.cluster])}_of_{self.answer}"


def algorithm_named(name: str) -> Algorithm:
    """The inverse of `Algorithm.name`. Raises UsageError for what it never is."""
    found = NAME.fullmatch(name)
    if found and found[1]:
        return Algorithm(int(found[1]))
    if found:
        rows, columns, along, across, answer = map(int, found.groups()[1:])
        tiles = [key for key, sizes in TILES.items() if sizes == (rows, columns)]
        clusters = [key for key, sizes in CLUSTERS.items() if sizes == (along, across)]
        if tiles and clusters:
            return Algorithm(answer, tiles[0], clusters[0])
    raise UsageError(f"{name} is no algorithm of cuBLASLt; give results of `hillclimb gemm bench`")


def _sizes(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"
