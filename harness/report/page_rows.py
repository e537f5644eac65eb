"""Candidates and calls as the page's script reads them: short rows for the lists, facts for the page's view of one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hillclimb.harness.report.page_ledger import (
    CandidateHistory,
    LedgerObject,
    RunHistory,
    as_list,
    as_object,
    finite_number,
    safe_text,
)
from hillclimb.harness.report.page_samples import read_stages
from hillclimb.harness.report.page_text import say_when

MAX_LIST_BYTES = 5_000_000
"""Of ideas and details in the lists; the view of a candidate has them in full."""

Row = list[Any]


class StringTable:
    """Strings that stand in many rows, named by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def index(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    @property
    def strings(self) -> list[str]:
        return list(self._numbers)


def candidate_rows(chronicle: RunHistory, words: StringTable) -> list[Row]:
    """[n, author, family, phase, verdict, idea, detail, over baseline, low, high, step, low, high, seconds, knobs,
    stage of the step]."""
    room = _room(len(chronicle.candidates))
    return [_row(seen, words, room) for seen in chronicle.candidates]


def call_rows(chronicle: RunHistory, words: StringTable) -> list[Row]:
    """[k, candidate, model, family, outcome, fault, idea, detail, seconds, attempts, prompt, cached, completion,
    reasoning, cost, estimated, mends]."""
    made = {finite_number(seen.proposal.get("call")): seen.n for seen in chronicle.candidates}
    room = _room(len(chronicle.calls))
    return [
        _call(call, words, room, made.get(finite_number(call.get("k")) or math.nan))
        for call in chronicle.calls
    ]


def candidate_facts(seen: CandidateHistory, folder: Path) -> LedgerObject:
    """What the view of one candidate shows besides its row; keys whose value is nothing are left out."""
    judged, proposal = seen.judged, seen.proposal
    facts = {
        "idea": safe_text(proposal.get("idea")),
        "detail": safe_text(judged.get("detail")),
        "time": say_when(judged.get("time") or seen.time) if judged or seen.time else None,
        "knobs": _knobs(proposal),
        "files": [
            safe_text(as_object(edit).get("path"), 200) for edit in as_list(proposal.get("edits"))[:200]
        ],
        "call": finite_number(proposal.get("call")),
        "undoes": finite_number(proposal.get("undoes")),
        "gate": _gate(as_object(judged.get("gate"))),
        "rails": [_rail(as_object(rail)) for rail in as_list(judged.get("guardrails"))],
        "screened": _short(judged.get("screened")),
        "decided": _decided(as_object(judged.get("decided"))),
        "pairs": finite_number(as_object(judged.get("speedup")).get("pairs")),
        "confidence": finite_number(as_object(judged.get("speedup")).get("confidence")),
        "e": _short(judged.get("e_value")),
        "alpha": _short(seen.confirming.get("alpha")),
        "k": finite_number(seen.confirming.get("k")),
        "spc": _short(judged.get("seconds_per_call")),
        "metrics": [_metric(as_object(one)) for one in as_list(judged.get("metrics"))],
        "commit": safe_text(judged.get("commit"), 64),
        "parent": safe_text(judged.get("parent"), 64),
        "ref": safe_text(judged.get("ref"), 300),
        "post": safe_text(seen.webhook.get("webhook_status"), 200) if seen.kept else None,
        "stages": read_stages(folder / "samples" / f"{seen.n}.json"),
    }
    return {key: value for key, value in facts.items() if value not in (None, "", [], {})}


def knobs_text(proposal: LedgerObject) -> str:
    """Like `TILE=16 UNROLL=2`."""
    return " ".join(f"{name}={value}" for name, value in _knobs(proposal).items())


def _row(seen: CandidateHistory, words: StringTable, room: int) -> Row:
    judged, proposal = seen.judged, seen.proposal
    cumulative = as_object(judged.get("cumulative")) if seen.kept else {}
    step = seen.step
    return [
        seen.n,
        words.index(safe_text(proposal.get("author"), 40) or "unknown"),
        words.index(safe_text(proposal.get("family"), 80)),
        words.index(seen.phase),
        words.index(safe_text(seen.verdict, 80)),
        safe_text(proposal.get("idea"), room),
        safe_text(judged.get("detail"), room),
        _short(seen.over_baseline),
        _short(cumulative.get("low")),
        _short(cumulative.get("high")),
        _short(step.speedup),
        _short(step.low),
        _short(step.high),
        _short(judged.get("seconds")),
        safe_text(knobs_text(proposal), room),
        words.index(step.stage),
    ]


def _call(call: LedgerObject, words: StringTable, room: int, candidate: int | None) -> Row:
    usage = as_object(call.get("usage"))
    tokens = [finite_number(usage.get(name)) or 0 for name in ("prompt", "cached", "completion", "reasoning")]
    return [
        call.get("k") if isinstance(call.get("k"), int) else 0,
        candidate,
        words.index(safe_text(call.get("model"), 80)),
        words.index(safe_text(call.get("family"), 80)),
        words.index(safe_text(call.get("outcome"), 80)),
        words.index(safe_text(call.get("fault"), 80)),
        safe_text(call.get("idea"), room),
        safe_text(call.get("detail"), room),
        _short(call.get("seconds")),
        finite_number(call.get("attempts")),
        *map(int, tokens),
        _short(call.get("cost")),
        1 if usage.get("estimated") else 0,
        finite_number(call.get("repairs")),
    ]


def _room(count: int) -> int:
    """Characters for one text of a list."""
    return max(80, min(400, MAX_LIST_BYTES // (3 * max(count, 1))))


def _knobs(proposal: LedgerObject) -> dict[str, str]:
    return {
        safe_text(name, 80): safe_text(value, 200) for name, value in as_object(proposal.get("knobs")).items()
    }


def _gate(gate: LedgerObject) -> LedgerObject:
    if not gate:
        return {}
    return {
        "passed": gate.get("passed") is True,
        "detail": safe_text(gate.get("detail")),
        "runs": finite_number(gate.get("runs")),
        "worst": _short(gate.get("worst")),
        "at": safe_text(gate.get("worst_at"), 200),
    }


def _decided(decided: LedgerObject) -> Row:
    """[speedup, low, high]; of one pair without an interval."""
    interval = as_object(decided.get("interval"))
    figures = (decided.get("speedup"), interval.get("low"), interval.get("high"))
    return [_short(figure) for figure in figures] if decided else []


def _rail(rail: LedgerObject) -> Row:
    """[suite, passed, estimate, low, high, most slowdown]."""
    speedup = as_object(rail.get("speedup"))
    figures = [_short(speedup.get(name)) for name in ("estimate", "low", "high")]
    return [
        safe_text(f"{rail.get('suite') or ''} {rail.get('metric') or ''}".strip(), 160),
        rail.get("passed") is True,
        *figures,
        _short(rail.get("max_slowdown")),
    ]


def _metric(metric: LedgerObject) -> Row:
    """[suite, metric, unit, before, value, gain, low, high]."""
    gain = as_object(metric.get("gain"))
    figures = (
        metric.get("before"),
        metric.get("value"),
        gain.get("estimate"),
        gain.get("low"),
        gain.get("high"),
    )
    names = (safe_text(metric.get(name), 80) for name in ("suite", "metric", "unit"))
    return [*names, *(_short(figure) for figure in figures)]


def _short(value: object) -> float | None:
    """Six digits: more than was measured."""
    figure = finite_number(value)
    return None if figure is None else float(f"{figure:.6g}")
