"""report.html: one self-contained page about a run, made from its ledger; a view, like progress.png."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.case.case import Settings
from harness.report import page_text
from harness.report.page_costs import add_up, list_phases
from harness.report.page_knobs import KnobFacts, describe_knobs, observe_source, observe_steps
from harness.report.page_ledger import Chronicle, many, section, text
from harness.report.page_packs import Diff, embed, pack_diffs, pack_facts
from harness.report.page_profile import describe_profiles
from harness.report.page_rows import Words, list_calls, list_candidates, tell_facts

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
TOLD = 20
"""Wins in the table that needs no script, and phases before a fold; all wins are in the list."""
ENOUGH = 12
"""Configurations seen on the present source from which they alone are shown."""

_PARTS = Path(__file__).parent
_FILTERS = ("speedup", "interval", "seconds", "duration", "count", "share", "money", "when", "rate")


@dataclass(frozen=True)
class Sources:
    """What a page is made from besides the ledger itself."""

    folder: Path
    """The run's: raw samples are read from it."""
    chronicle: Chronicle
    diffs: Mapping[int, Diff] = field(default_factory=dict)
    settings: Settings | None = None
    """case.yaml as the run began; None where it cannot be read any more."""
    knobs: tuple[KnobFacts, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Of the knobs in the last win that edited files, or at the start."""


def render(sources: Sources) -> bytes:
    """The whole page."""
    script = _read("page.js")
    data, packs = _data(sources)
    html = (
        environment(_PARTS)
        .get_template("page.html.j2")
        .render(
            **_summary(sources),
            style=style(),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=embed(data),
            packs=packs,
        )
    )
    return html.encode(errors="replace")


def _read(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")


def style() -> str:
    """What every page of ours looks like, as CSS."""
    return _read("page.css")


def environment(folder: Path) -> Environment:
    """A folder's templates, which escape whatever they are given; what an old ledger does not say is left empty."""
    from jinja2 import ChainableUndefined, Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in _FILTERS:
        environment.filters[name] = getattr(page_text, f"say_{name}")
    environment.filters["clean"] = text
    return environment


def _data(sources: Sources) -> tuple[dict[str, Any], dict[str, str]]:
    """What the page's script reads: the lists at once, the packs when a candidate is opened."""
    chronicle, words = sources.chronicle, Words()
    rows, calls = list_candidates(chronicle, words), list_calls(chronicle, words)
    facts = pack_facts({seen.n: tell_facts(seen, sources.folder) for seen in chronicle.candidates})
    diffs = pack_diffs(sources.diffs)
    data = {
        "rows": rows,
        "calls": calls,
        "words": words.all,
        "reasons": page_text.REASONS,
        "phases": [[row.first, row.phase, row.family] for row in list_phases(chronicle)],
        "facts": facts.places,
        "diffs": diffs.places,
        "undiffed": sorted(set(sources.diffs) - {n for group in diffs.places for n in group}),
    }
    return data, {**facts.elements, **diffs.elements}


def _summary(sources: Sources) -> dict[str, Any]:
    """What the page says without a script."""
    chronicle = sources.chronicle
    wins, provenance = chronicle.wins, section(chronicle.opened.get("provenance"))
    return {
        "chronicle": chronicle,
        "opened": chronicle.opened,
        "provenance": provenance,
        "software": {
            text(name, 80): version for name, version in section(provenance.get("software")).items()
        },
        "per_call": many(chronicle.remeasured.get("seconds_per_call")),
        "headline": _headline(chronicle),
        "state": _state(chronicle),
        "wins": wins[-TOLD:],
        "told": TOLD,
        "win_count": len(wins),
        "verdicts": Counter(seen.verdict for seen in chronicle.candidates).most_common(),
        "groups": Counter(page_text.group_of(seen.verdict) for seen in chronicle.candidates),
        "phases": list_phases(chronicle),
        "costs": add_up(chronicle),
        **_knobs(sources),
        "profile": describe_profiles(chronicle.profiles),
        "settings": sources.settings,
        "notes": _notes(chronicle),
    }


def _knobs(sources: Sources) -> dict[str, Any]:
    """What was seen on the present source; while that is little, what was seen all along, step by step."""
    candidates = sources.chronicle.candidates
    present = observe_source(candidates, sources.defaults)
    is_settled = len(present) >= ENOUGH
    seen = present if is_settled else observe_steps(candidates)
    panels = describe_knobs(sources.knobs, seen, sources.chronicle.importances)
    return {"knobs": panels, "is_settled": is_settled}


def _headline(chronicle: Chronicle) -> tuple[dict[str, Any], str]:
    """The speedup to name first, and what it is: first against last measured again, while that is of the last win."""
    wins, again = chronicle.wins, chronicle.remeasured
    if again and wins and again.get("commit") == wins[-1].judged.get("commit"):
        return section(again.get("speedup")), "first commit against last, measured again at the end"
    if wins:
        return section(
            wins[-1].judged.get("cumulative")
        ), "over the baseline, as measured when the last win was kept"
    return {"estimate": 1.0}, "no win so far"


def _state(chronicle: Chronicle) -> tuple[str, str]:
    """(finished, interrupted or unfinished; in words)."""
    finished = chronicle.finished
    if not chronicle.opened and not chronicle.candidates:
        return "unfinished", "the run has not begun"
    if not finished:
        return "unfinished", "no end is written: it is climbing still, or was stopped from outside"
    return "interrupted" if finished.get("interrupted") else "finished", text(finished.get("reason"), 400)


def _notes(chronicle: Chronicle) -> list[str]:
    lines = f"{chronicle.damaged} line{'s' if chronicle.damaged > 1 else ''}"
    return [f"{lines} of the ledger could not be read and stand aside"] if chronicle.damaged else []
