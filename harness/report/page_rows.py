"""Candidates and calls as the page's script reads them: short rows for the lists, facts for one candidate's sheet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from harness.report.page_ledger import Chronicle, Line, Seen, many, number, section, text
from harness.report.page_samples import read_stages
from harness.report.page_text import say_when

LISTED_BYTES = 5_000_000
"""Of ideas and details in the lists; the sheet of a candidate has them in full."""

Row = list[Any]


class Words:
    """Strings that stand in many rows, named by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    @property
    def all(self) -> list[str]:
        return list(self._numbers)


def list_candidates(chronicle: Chronicle, words: Words) -> list[Row]:
    """[n, author, family, phase, verdict, idea, detail, over baseline, low, high, step, low, high, seconds, knobs]."""
    room = _room(len(chronicle.candidates))
    return [_row(seen, words, room) for seen in chronicle.candidates]


def list_calls(chronicle: Chronicle, words: Words) -> list[Row]:
    """[k, candidate, model, family, outcome, fault, idea, detail, seconds, attempts, prompt, cached, completion,
    reasoning, cost, estimated, mends]."""
    made = {number(seen.proposal.get("call")): seen.n for seen in chronicle.candidates}
    room = _room(len(chronicle.calls))
    return [_call(call, words, room, made.get(number(call.get("k")) or math.nan)) for call in chronicle.calls]


def tell_facts(seen: Seen, folder: Path) -> Line:
    """What the sheet of one candidate shows besides its row; keys whose value is nothing are left out."""
    judged, proposal = seen.judged, seen.proposal
    facts = {
        "idea": text(proposal.get("idea")),
        "detail": text(judged.get("detail")),
        "time": say_when(judged.get("time") or seen.time) if judged or seen.time else None,
        "knobs": _knobs(proposal),
        "files": [text(section(edit).get("path"), 200) for edit in many(proposal.get("edits"))[:200]],
        "call": number(proposal.get("call")),
        "undoes": number(proposal.get("undoes")),
        "gate": _gate(section(judged.get("gate"))),
        "rails": [_rail(section(rail)) for rail in many(judged.get("guardrails"))],
        "screened": _short(judged.get("screened")),
        "pairs": number(section(judged.get("speedup")).get("pairs")),
        "confidence": number(section(judged.get("speedup")).get("confidence")),
        "e": _short(judged.get("e_value")),
        "alpha": _short(seen.confirming.get("alpha")),
        "k": number(seen.confirming.get("k")),
        "spc": _short(judged.get("seconds_per_call")),
        "commit": text(judged.get("commit"), 64),
        "parent": text(judged.get("parent"), 64),
        "ref": text(judged.get("ref"), 300),
        "post": text(seen.webhook.get("webhook_status"), 200) if seen.kept else None,
        "stages": read_stages(folder / "samples" / f"{seen.n}.json"),
    }
    return {key: value for key, value in facts.items() if value not in (None, "", [], {})}


def say_knobs(proposal: Line) -> str:
    """Like `TILE=16 UNROLL=2`."""
    return " ".join(f"{name}={value}" for name, value in _knobs(proposal).items())


def _row(seen: Seen, words: Words, room: int) -> Row:
    judged, proposal = seen.judged, seen.proposal
    cumulative = section(judged.get("cumulative")) if seen.kept else {}
    step = section(judged.get("speedup"))
    return [
        seen.n,
        words.number(text(proposal.get("author"), 40) or "unknown"),
        words.number(text(proposal.get("family"), 80)),
        words.number(seen.phase),
        words.number(text(seen.verdict, 80)),
        text(proposal.get("idea"), room),
        text(judged.get("detail"), room),
        _short(seen.over_baseline),
        _short(cumulative.get("low")),
        _short(cumulative.get("high")),
        _short(step.get("estimate") if step else judged.get("screened")),
        _short(step.get("low")),
        _short(step.get("high")),
        _short(judged.get("seconds")),
        text(say_knobs(proposal), room),
    ]


def _call(call: Line, words: Words, room: int, candidate: int | None) -> Row:
    usage = section(call.get("usage"))
    tokens = [number(usage.get(name)) or 0 for name in ("prompt", "cached", "completion", "reasoning")]
    return [
        call.get("k") if isinstance(call.get("k"), int) else 0,
        candidate,
        words.number(text(call.get("model"), 80)),
        words.number(text(call.get("family"), 80)),
        words.number(text(call.get("outcome"), 80)),
        words.number(text(call.get("fault"), 80)),
        text(call.get("idea"), room),
        text(call.get("detail"), room),
        _short(call.get("seconds")),
        number(call.get("attempts")),
        *map(int, tokens),
        _short(call.get("cost")),
        1 if usage.get("estimated") else 0,
        number(call.get("repairs")),
    ]


def _room(count: int) -> int:
    """Characters for one text of a list."""
    return max(80, min(400, LISTED_BYTES // (3 * max(count, 1))))


def _knobs(proposal: Line) -> dict[str, str]:
    return {text(name, 80): text(value, 200) for name, value in section(proposal.get("knobs")).items()}


def _gate(gate: Line) -> Line:
    if not gate:
        return {}
    return {
        "passed": gate.get("passed") is True,
        "detail": text(gate.get("detail")),
        "runs": number(gate.get("runs")),
        "worst": _short(gate.get("worst")),
        "at": text(gate.get("worst_at"), 200),
    }


def _rail(rail: Line) -> Row:
    """[suite, passed, estimate, low, high, most slowdown]."""
    speedup = section(rail.get("speedup"))
    figures = [_short(speedup.get(name)) for name in ("estimate", "low", "high")]
    return [
        text(rail.get("suite"), 80),
        rail.get("passed") is True,
        *figures,
        _short(rail.get("max_slowdown")),
    ]


def _short(value: object) -> float | None:
    """Six digits: more than was measured."""
    figure = number(value)
    return None if figure is None else float(f"{figure:.6g}")
