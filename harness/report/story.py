"""What a ledger tells a picture: read straight from the JSON lines, a torn last line left aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class Win:
    """One kept candidate. Speedups are over the baseline."""

    n: int
    idea: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Story:
    """One run, as far as it got."""

    case: str
    tag: str
    device: str
    wins: tuple[Win, ...]
    screened: tuple[tuple[int, float], ...]
    """(candidate, speedup over the baseline as the screening pair saw it)."""
    refused: tuple[int, ...]
    """Candidates that could not be timed: the gate or their own end stopped them."""
    judged: int
    remeasured: tuple[float, float, float] | None
    """First commit against last at the end of the run: estimate, low, high."""

    @property
    def best(self) -> float:
        return self.wins[-1].estimate if self.wins else 1.0


def read_story(folder: Path) -> Story:
    """The story of the run in `folder`. Raises UsageError where there is no ledger."""
    path = folder / LEDGER
    if not path.is_file():
        raise UsageError(f"{path}: there is no ledger; name the folder of a run, runs/<family>/<case>/<tag>")
    lines = list(_lines(path))
    opened = next((line for line in lines if line["kind"] == "opened"), {})
    ideas = {line["n"]: line["proposal"]["idea"] for line in lines if line["kind"] == "proposed"}
    judged = [line for line in lines if line["kind"] == "judged"]
    remeasured = next((line["speedup"] for line in reversed(lines) if line["kind"] == "remeasured"), None)
    wins = tuple(
        Win(line["n"], ideas.get(line["n"], ""), *_interval(line["cumulative"]))
        for line in judged
        if line["kept"] and line["cumulative"]
    )
    return Story(
        case=opened.get("case", ""),
        tag=opened.get("tag", ""),
        device=opened.get("provenance", {}).get("device", ""),
        wins=wins,
        screened=tuple(_screened(judged)),
        refused=tuple(line["n"] for line in judged if not line["kept"] and line["screened"] is None),
        judged=len(judged),
        remeasured=_interval(remeasured) if remeasured else None,
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "kind" in line:
            yield line


def _screened(judged: list[dict[str, Any]]) -> Iterator[tuple[int, float]]:
    """A screening is against the incumbent of its time, which the last win before it measured."""
    incumbent = 1.0
    for line in judged:
        if line["screened"] is not None and line["screened"] > 0:
            yield line["n"], incumbent * line["screened"]
        if line["kept"] and line["cumulative"]:
            incumbent = line["cumulative"]["estimate"]


def _interval(record: dict[str, Any]) -> tuple[float, float, float]:
    return record["estimate"], record["low"], record["high"]
