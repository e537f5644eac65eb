"""What a ledger tells a picture: all of it that can be read, as on the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.report.page_ledger import Chronicle, Seen, number, read_chronicle, section, text

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
    chronicle = read_chronicle(path)
    judged = [seen for seen in chronicle.candidates if seen.judged]
    opened = chronicle.opened
    return Story(
        case=text(opened.get("case")),
        tag=text(opened.get("tag")),
        device=text(section(opened.get("provenance")).get("device")),
        wins=tuple(_wins(chronicle)),
        screened=tuple(_screened(judged)),
        refused=tuple(seen.n for seen in judged if not seen.kept and seen.judged.get("screened") is None),
        judged=len(judged),
        remeasured=_interval(chronicle.remeasured.get("speedup")),
    )


def _wins(chronicle: Chronicle) -> Iterator[Win]:
    for seen in chronicle.wins:
        if interval := _interval(seen.judged.get("cumulative")):
            yield Win(seen.n, text(seen.proposal.get("idea")), *interval)


def _screened(judged: list[Seen]) -> Iterator[tuple[int, float]]:
    """A screening is against the incumbent of its time, which the last win before it measured."""
    for seen in judged:
        screened = number(seen.judged.get("screened"))
        if screened is not None and screened > 0:
            yield seen.n, seen.incumbent * screened


def _interval(record: object) -> tuple[float, float, float] | None:
    found = [number(section(record).get(name)) for name in ("estimate", "low", "high")]
    estimate, low, high = found
    return None if estimate is None or low is None or high is None else (estimate, low, high)
