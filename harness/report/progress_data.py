"""What a ledger tells a picture: all of it that can be read, as on the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.report.page_ledger import (
    CandidateHistory,
    RunHistory,
    as_object,
    finite_number,
    read_history,
    safe_text,
)

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class PlottedWin:
    """One kept candidate. Speedups are over the baseline."""

    n: int
    idea: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class ProgressData:
    """One run, as far as it got."""

    case: str
    tag: str
    device: str
    wins: tuple[PlottedWin, ...]
    screened: tuple[tuple[int, float], ...]
    """(candidate, speedup over the baseline) of those rejected that only the screening pair timed."""
    decided: tuple[tuple[int, float], ...]
    """The same of those rejected that fresh pairs timed, as the last of these saw it."""
    untimed: tuple[int, ...]
    """Candidates that could not be timed: the gate or their own end stopped them."""
    judged: int
    remeasured: tuple[float, float, float] | None
    """First commit against last at the end of the run, while that is the last win: estimate, low, high."""

    @property
    def best(self) -> float:
        """The one figure to name: measured again at the end where it was, else as the last win was kept."""
        if self.remeasured:
            return self.remeasured[0]
        return self.wins[-1].estimate if self.wins else 1.0


def read_progress(folder: Path) -> ProgressData:
    """The story of the run in `folder`. Raises UsageError where there is no ledger."""
    path = folder / LEDGER
    if not path.is_file():
        raise UsageError(f"{path}: there is no ledger; name the folder of a run, runs/<family>/<case>/<tag>")
    chronicle = read_history(path)
    judged = [seen for seen in chronicle.candidates if seen.judged]
    opened = chronicle.opened
    return ProgressData(
        case=safe_text(opened.get("case")),
        tag=safe_text(opened.get("tag")),
        device=safe_text(as_object(opened.get("provenance")).get("device")),
        wins=tuple(_wins(chronicle)),
        screened=tuple(_rejected(judged, ("screen",))),
        decided=tuple(_rejected(judged, ("decide", "report"))),
        untimed=tuple(seen.n for seen in judged if not seen.kept and seen.over_baseline is None),
        judged=len(judged),
        remeasured=_interval(chronicle.remeasured.get("speedup")) if chronicle.is_remeasured else None,
    )


def _wins(chronicle: RunHistory) -> Iterator[PlottedWin]:
    for seen in chronicle.wins:
        if interval := _interval(seen.judged.get("cumulative")):
            yield PlottedWin(seen.n, safe_text(seen.proposal.get("idea")), *interval)


def _rejected(judged: list[CandidateHistory], stages: tuple[str, ...]) -> Iterator[tuple[int, float]]:
    """Those whose last timing was in one of these stages, over the baseline by the incumbent of their time."""
    for seen in judged:
        if not seen.kept and seen.step.stage in stages and seen.over_baseline is not None:
            yield seen.n, seen.over_baseline


def _interval(record: object) -> tuple[float, float, float] | None:
    found = [finite_number(as_object(record).get(name)) for name in ("estimate", "low", "high")]
    estimate, low, high = found
    return None if estimate is None or low is None or high is None else (estimate, low, high)
