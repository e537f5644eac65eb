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

LedgerObject = dict[str, Any]
"""One JSON object of the ledger."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


@dataclass(frozen=True)
class TimedStep:
    """A candidate's speedup over the incumbent that it met, as the last stage that timed it saw it."""

    stage: str = ""
    """screen, decide or report; empty where nothing was timed, and the rest None."""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass
class CandidateHistory:
    """What the ledger says of one candidate; missing parts are empty."""

    n: int
    time: float | None = None
    proposal: LedgerObject = field(default_factory=dict)
    confirming: LedgerObject = field(default_factory=dict)
    judged: LedgerObject = field(default_factory=dict)
    webhook: LedgerObject = field(default_factory=dict)
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
        return "kept" if self.kept else safe_text(self.judged.get("reason")) or "rejected"

    @cached_property
    def step(self) -> TimedStep:
        """Over the incumbent that it met, by the last stage that timed it. Asked once all of the ledger is read."""
        decided = as_object(self.judged.get("decided"))
        for stage, interval, estimate in (
            ("report", as_object(self.judged.get("speedup") or self.judged.get("refuted")), None),
            ("decide", as_object(decided.get("interval")), decided.get("speedup")),
            ("screen", {}, self.judged.get("screened")),
        ):
            seen = finite_number(interval.get("estimate") if estimate is None else estimate)
            if seen is not None:
                low, high = (finite_number(interval.get(end)) for end in ("low", "high"))
                return TimedStep(stage, seen, low, high)
        return TimedStep()

    @property
    def over_baseline(self) -> float | None:
        """Measured where it was kept, else the incumbent's times its step; None: never timed."""
        if self.kept:
            return finite_number(as_object(self.judged.get("cumulative")).get("estimate"))
        seen = self.step.speedup
        return self.incumbent * seen if seen is not None and seen > 0 else None


@dataclass
class RunHistory:
    """One run as far as its ledger can be read."""

    opened: LedgerObject = field(default_factory=dict)
    baselined: LedgerObject = field(default_factory=dict)
    remeasured: LedgerObject = field(default_factory=dict)
    finished: LedgerObject = field(default_factory=dict)
    """The end; empty while there is none, or once a later session went on."""
    importances: dict[str, float] = field(default_factory=dict)
    """Of the last end that named them."""
    importances_missing: str = ""
    """Why the last end named none, in words."""
    candidates: list[CandidateHistory] = field(default_factory=list)
    turns: list[LedgerObject] = field(default_factory=list)
    calls: list[LedgerObject] = field(default_factory=list)
    dropped: dict[float | None, LedgerObject] = field(default_factory=dict)
    """Usable replies that became no candidate, by their calls."""
    profiles: list[LedgerObject] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    """First and last time of each session."""
    budgets: LedgerObject | None = None
    """Those in force in the last session that had any; None where the ledger does not say."""
    unreadable_lines: int = 0
    """Lines that could not be read."""

    @property
    def wins(self) -> list[CandidateHistory]:
        return [seen for seen in self.candidates if seen.kept]

    @property
    def is_remeasured(self) -> bool:
        """Whether first against last was measured again, and that is still the last win."""
        again, wins = self.remeasured, self.wins
        return bool(again and wins) and again.get("commit") == wins[-1].judged.get("commit")

    @property
    def elapsed(self) -> float:
        """Seconds of work over all sessions."""
        return sum(last - start for start, last in self.spans)


def read_history(path: Path) -> RunHistory:
    """Everything in the file that can be read. Raises OSError where there is no file."""
    chronicle, seen = RunHistory(), dict[int, CandidateHistory]()
    for line in _lines(path, chronicle):
        _take(chronicle, seen, line)
    chronicle.candidates = [seen[n] for n in sorted(seen)]
    chronicle.calls = [
        _end(call, chronicle.dropped.get(finite_number(call.get("k")))) for call in chronicle.calls
    ]
    _place(chronicle)
    return chronicle


def finite_number(value: object) -> float | None:
    """A finite figure; None for anything else, such as the "NaN" of a record."""
    if type(value) is int:
        return float(value) if abs(value) < 1e300 else None
    return value if type(value) is float and math.isfinite(value) else None


def safe_text(value: object, most: int = 4096) -> str:
    """A cell's text: cut, and with the characters that show nothing or turn the line around spelled out."""
    if type(value) is str and len(value) <= most and value.isascii() and value.isprintable():
        return value
    whole = value if isinstance(value, str) else "" if value is None else str(value)
    shown = whole if len(whole) <= most else whole[: most - 1] + "…"
    return _INVISIBLE.sub(lambda found: f"‹U+{ord(found[0]):04X}›", shown.replace("\r\n", "\n"))


def as_object(value: object) -> LedgerObject:
    """A part of a line that should be an object."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """A part of a line that should be a list."""
    return value if isinstance(value, list) else []


def _lines(path: Path, chronicle: RunHistory) -> Iterator[LedgerObject]:
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
            chronicle.unreadable_lines += 1


def _take(chronicle: RunHistory, seen: dict[int, CandidateHistory], line: LedgerObject) -> None:
    kind, n = line["kind"], line.get("n")
    if kind not in ("session", "finished", "notified"):
        chronicle.finished = {}
    if kind in ("proposed", "confirming", "judged", "settled", "notified") and isinstance(n, int):
        _change(seen.setdefault(n, CandidateHistory(n)), line)
    match kind:
        case "opened" | "baselined" | "remeasured":
            setattr(chronicle, kind, line)
        case "session":
            budgets = line.get("budgets")
            chronicle.budgets = budgets if isinstance(budgets, dict) else chronicle.budgets
        case "turned":
            chronicle.turns.append(line)
        case "called":
            chronicle.calls.append(line)
        case "dropped":
            chronicle.dropped[finite_number(line.get("k"))] = line
        case "profiled":
            chronicle.profiles.append(line)
        case "finished":
            chronicle.finished = line
            chronicle.importances_missing = safe_text(line.get("importances_missing"), 200)
            earlier = {} if chronicle.importances_missing else chronicle.importances
            chronicle.importances = _shares(line.get("importances")) or earlier
    _tick(chronicle, kind, finite_number(line.get("time")))


def _change(candidate: CandidateHistory, line: LedgerObject) -> None:
    match line["kind"]:
        case "proposed":
            candidate.proposal, candidate.time = (
                as_object(line.get("proposal")),
                finite_number(line.get("time")),
            )
        case "confirming" | "judged":
            setattr(candidate, line["kind"], line)
        case "settled" | "notified":
            candidate.webhook = as_object(line.get("webhook")) or candidate.webhook


def _end(call: LedgerObject, drop: LedgerObject | None) -> LedgerObject:
    """A call as it ended: a reply that was usable may have become nothing."""
    return call if drop is None else {**call, "outcome": drop.get("reason"), "detail": drop.get("detail")}


def _shares(value: object) -> dict[str, float]:
    found = {safe_text(name, 80): finite_number(share) for name, share in as_object(value).items()}
    return {name: share for name, share in found.items() if share is not None}


def _tick(chronicle: RunHistory, kind: str, time: float | None) -> None:
    if time is None:
        return
    if kind == "session":
        chronicle.spans.append((time, time))
    elif chronicle.spans:
        start, last = chronicle.spans[-1]
        chronicle.spans[-1] = (start, max(last, time))


def _place(chronicle: RunHistory) -> None:
    """Every candidate's phase, and the incumbent that it met."""
    turns = sorted(chronicle.turns, key=lambda turn: finite_number(turn.get("n")) or 0.0)
    at, incumbent = 0, 1.0
    for candidate in chronicle.candidates:
        while at < len(turns) and (finite_number(turns[at].get("n")) or 0.0) <= candidate.n:
            at += 1
        candidate.phase = safe_text(turns[at - 1].get("phase"), 40) if at else ""
        candidate.incumbent = incumbent
        if candidate.kept:
            incumbent = candidate.over_baseline or incumbent
