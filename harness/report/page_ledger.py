"""A ledger as the page reads it: any line that can be read, whatever version or crash left it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Line = dict[str, Any]
"""One JSON object of the ledger."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


@dataclass
class Seen:
    """What the ledger says of one candidate; missing parts are empty."""

    n: int
    time: float | None = None
    proposal: Line = field(default_factory=dict)
    confirming: Line = field(default_factory=dict)
    judged: Line = field(default_factory=dict)
    webhook: Line = field(default_factory=dict)
    phase: str = ""
    incumbent: float = 1.0
    """The incumbent's speedup over the baseline while this candidate was tried."""

    @property
    def kept(self) -> bool:
        return self.judged.get("kept") is True

    @cached_property
    def verdict(self) -> str:
        """kept, the reason of the rejection, or pending. Asked once all of the ledger is read."""
        if not self.judged:
            return "pending"
        return "kept" if self.kept else text(self.judged.get("reason")) or "rejected"

    @property
    def step(self) -> float | None:
        """Over the incumbent that it met, as far as it was measured."""
        measured = number(section(self.judged.get("speedup")).get("estimate"))
        return number(self.judged.get("screened")) if measured is None else measured

    @property
    def over_baseline(self) -> float | None:
        """Measured where it was kept, else the incumbent's times what the screening pair saw; None: never timed."""
        if self.kept:
            return number(section(self.judged.get("cumulative")).get("estimate"))
        screened = number(self.judged.get("screened"))
        return self.incumbent * screened if screened is not None and screened > 0 else None


@dataclass
class Chronicle:
    """One run as far as its ledger can be read."""

    opened: Line = field(default_factory=dict)
    baselined: Line = field(default_factory=dict)
    remeasured: Line = field(default_factory=dict)
    finished: Line = field(default_factory=dict)
    """The end; empty while there is none, or once a later session went on."""
    importances: dict[str, float] = field(default_factory=dict)
    """Of the last end that named them."""
    candidates: list[Seen] = field(default_factory=list)
    turns: list[Line] = field(default_factory=list)
    calls: list[Line] = field(default_factory=list)
    dropped: dict[float | None, Line] = field(default_factory=dict)
    """Usable replies that became no candidate, by their calls."""
    profiles: list[Line] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    """First and last time of each session."""
    damaged: int = 0
    """Lines that could not be read."""

    @property
    def wins(self) -> list[Seen]:
        return [seen for seen in self.candidates if seen.kept]

    @property
    def elapsed(self) -> float:
        """Seconds of work over all sessions."""
        return sum(last - start for start, last in self.spans)


def read_chronicle(path: Path) -> Chronicle:
    """Everything in the file that can be read. Raises OSError where there is no file."""
    chronicle, seen = Chronicle(), dict[int, Seen]()
    for line in _lines(path, chronicle):
        _take(chronicle, seen, line)
    chronicle.candidates = [seen[n] for n in sorted(seen)]
    chronicle.calls = [_end(call, chronicle.dropped.get(number(call.get("k")))) for call in chronicle.calls]
    _place(chronicle)
    return chronicle


def number(value: object) -> float | None:
    """A finite figure; None for anything else, such as the "NaN" of a record."""
    if type(value) is int:
        return float(value) if abs(value) < 1e300 else None
    return value if type(value) is float and math.isfinite(value) else None


def text(value: object, most: int = 4096) -> str:
    """A cell's text: cut, and with the characters that show nothing or turn the line around spelled out."""
    if type(value) is str and len(value) <= most and value.isascii() and value.isprintable():
        return value
    whole = value if isinstance(value, str) else "" if value is None else str(value)
    shown = whole if len(whole) <= most else whole[: most - 1] + "…"
    return _INVISIBLE.sub(lambda found: f"‹U+{ord(found[0]):04X}›", shown.replace("\r\n", "\n"))


def section(value: object) -> Line:
    """A part of a line that should be an object."""
    return value if isinstance(value, dict) else {}


def many(value: object) -> list[Any]:
    """A part of a line that should be a list."""
    return value if isinstance(value, list) else []


def _lines(path: Path, chronicle: Chronicle) -> Iterator[Line]:
    """Split at newlines alone: other separators may stand inside a JSON string."""
    for raw in path.read_bytes().split(b"\n"):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict) and isinstance(line.get("kind"), str):
            yield line
        else:
            chronicle.damaged += 1


def _take(chronicle: Chronicle, seen: dict[int, Seen], line: Line) -> None:
    kind, n = line["kind"], line.get("n")
    if kind not in ("session", "finished", "notified"):
        chronicle.finished = {}
    if kind in ("proposed", "confirming", "judged", "settled", "notified") and isinstance(n, int):
        _change(seen.setdefault(n, Seen(n)), line)
    match kind:
        case "opened" | "baselined" | "remeasured":
            setattr(chronicle, kind, line)
        case "turned":
            chronicle.turns.append(line)
        case "called":
            chronicle.calls.append(line)
        case "dropped":
            chronicle.dropped[number(line.get("k"))] = line
        case "profiled":
            chronicle.profiles.append(line)
        case "finished":
            chronicle.finished = line
            chronicle.importances = _shares(line.get("importances")) or chronicle.importances
    _tick(chronicle, kind, number(line.get("time")))


def _change(candidate: Seen, line: Line) -> None:
    match line["kind"]:
        case "proposed":
            candidate.proposal, candidate.time = section(line.get("proposal")), number(line.get("time"))
        case "confirming" | "judged":
            setattr(candidate, line["kind"], line)
        case "settled" | "notified":
            candidate.webhook = section(line.get("webhook")) or candidate.webhook


def _end(call: Line, drop: Line | None) -> Line:
    """A call as it ended: a reply that was usable may have become nothing."""
    return call if drop is None else {**call, "outcome": drop.get("reason"), "detail": drop.get("detail")}


def _shares(value: object) -> dict[str, float]:
    found = {text(name, 80): number(share) for name, share in section(value).items()}
    return {name: share for name, share in found.items() if share is not None}


def _tick(chronicle: Chronicle, kind: str, time: float | None) -> None:
    if time is None:
        return
    if kind == "session":
        chronicle.spans.append((time, time))
    elif chronicle.spans:
        start, last = chronicle.spans[-1]
        chronicle.spans[-1] = (start, max(last, time))


def _place(chronicle: Chronicle) -> None:
    """Every candidate's phase, and the incumbent that it met."""
    turns = sorted(chronicle.turns, key=lambda turn: number(turn.get("n")) or 0.0)
    at, incumbent = 0, 1.0
    for candidate in chronicle.candidates:
        while at < len(turns) and (number(turns[at].get("n")) or 0.0) <= candidate.n:
            at += 1
        candidate.phase = text(turns[at - 1].get("phase"), 40) if at else ""
        candidate.incumbent = incumbent
        if candidate.kept:
            incumbent = candidate.over_baseline or incumbent
