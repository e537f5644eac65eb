"""report.html: one self-contained page about a run, made from its ledger; a view, like progress.png."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hillclimb.harness.case.settings import Settings
from hillclimb.harness.report import page_text
from hillclimb.harness.report.page_costs import add_up_costs, list_phases
from hillclimb.harness.report.page_knobs import KnobFacts, describe_knobs, tried_on_source, tried_steps
from hillclimb.harness.report.page_ledger import RunHistory, as_list, as_object, safe_text
from hillclimb.harness.report.page_packs import Diff, embed, pack_diffs, pack_facts
from hillclimb.harness.report.page_profile import describe_profiles
from hillclimb.harness.report.page_rows import StringTable, call_rows, candidate_facts, candidate_rows
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
MAX_WINS_SHOWN = 20
"""Wins in the table that needs no script, and phases before a fold; all wins are in the list."""
MIN_CONFIGURATIONS = 12
"""Configurations seen on the present source from which they alone are shown."""

_PARTS = Path(__file__).parent
_FILTERS = ("speedup", "interval", "seconds", "duration", "count", "share", "money", "when", "rate")


@dataclass(frozen=True)
class PageSources:
    """What a page is made from besides the ledger itself."""

    folder: Path
    """The run's: raw samples are read from it."""
    chronicle: RunHistory
    diffs: Mapping[int, Diff] = field(default_factory=dict)
    settings: Settings | None = None
    """case.yaml as the run began; None where it cannot be read any more."""
    knobs: tuple[KnobFacts, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Of the knobs in the last win that edited files, or at the start."""
    taken_back: frozenset[int] = frozenset()
    """Candidates that were wins until a later commit reverted them."""
    is_told_by_commits: bool = False
    """Whether the ledger is not here, and the chronicle holds the wins that commits tell of."""


def render(sources: PageSources) -> bytes:
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
    environment.filters["clean"] = safe_text
    environment.filters["counted"] = count
    return environment


def _data(sources: PageSources) -> tuple[dict[str, Any], dict[str, str]]:
    """What the page's script reads: the lists at once, the packs when a candidate is opened."""
    chronicle, words = sources.chronicle, StringTable()
    rows, calls = candidate_rows(chronicle, words), call_rows(chronicle, words)
    facts = pack_facts({seen.n: candidate_facts(seen, sources.folder) for seen in chronicle.candidates})
    diffs = pack_diffs(sources.diffs)
    data = {
        "rows": rows,
        "calls": calls,
        "words": words.strings,
        "reasons": page_text.REASON_TEXTS,
        "phases": [[row.first, row.phase, row.family] for row in list_phases(chronicle)],
        "facts": facts.places,
        "diffs": diffs.places,
        "undiffed": sorted(set(sources.diffs) - {n for group in diffs.places for n in group}),
    }
    return data, {**facts.elements, **diffs.elements}


def _summary(sources: PageSources) -> dict[str, Any]:
    """What the page says without a script."""
    chronicle = sources.chronicle
    wins, provenance = chronicle.wins, as_object(chronicle.opened.get("provenance"))
    return {
        "chronicle": chronicle,
        "opened": chronicle.opened,
        "provenance": provenance,
        "software": {
            safe_text(name, 80): version for name, version in as_object(provenance.get("software")).items()
        },
        "per_call": as_list(chronicle.remeasured.get("seconds_per_call")),
        "headline": _headline(chronicle),
        "when_kept": _when_kept(chronicle),
        "state": _state(sources),
        "wins": wins[-MAX_WINS_SHOWN:],
        "told": MAX_WINS_SHOWN,
        "win_count": len(wins),
        "taken_back": sources.taken_back.intersection(win.n for win in wins),
        "verdicts": Counter(seen.verdict for seen in chronicle.candidates).most_common(),
        "groups": Counter(page_text.verdict_group(seen.verdict) for seen in chronicle.candidates),
        "phases": list_phases(chronicle),
        "costs": add_up_costs(chronicle),
        **_knobs(sources),
        "profile": describe_profiles(chronicle.profiles),
        "settings": sources.settings,
        "budgets": chronicle.budgets or (sources.settings.budgets if sources.settings else None),
        "notes": list(_notes(sources)),
    }


def _knobs(sources: PageSources) -> dict[str, Any]:
    """What was seen on the present source; while that is little, what was seen all along, step by step."""
    candidates = sources.chronicle.candidates
    present = tried_on_source(candidates, sources.defaults)
    is_settled = len(present) >= MIN_CONFIGURATIONS
    seen = present if is_settled else tried_steps(candidates)
    panels = describe_knobs(sources.knobs, seen, sources.chronicle.importances)
    return {"knobs": panels, "is_settled": is_settled}


def _headline(chronicle: RunHistory) -> tuple[dict[str, Any], str]:
    """The speedup to name first, and what it is: first against last measured again, while that is of the last win."""
    wins = chronicle.wins
    if chronicle.is_remeasured:
        again = as_object(chronicle.remeasured.get("speedup"))
        return again, "first commit against last, measured again at the end"
    if wins:
        return as_object(
            wins[-1].judged.get("cumulative")
        ), "over the baseline, as measured when the last win was kept"
    return {"estimate": 1.0}, "no win so far"


def _when_kept(chronicle: RunHistory) -> float | None:
    """Where the curve ends, where the headline is a later measurement of the same."""
    return chronicle.wins[-1].over_baseline if chronicle.is_remeasured else None


def _state(sources: PageSources) -> tuple[str, str]:
    """(finished, interrupted, unfinished or committed; in words)."""
    chronicle = sources.chronicle
    finished = chronicle.finished
    if sources.is_told_by_commits:
        return "committed", "the ledger of the run is not here: these are the wins as their commits tell them"
    if not chronicle.opened and not chronicle.candidates:
        return "unfinished", "the run has not begun"
    if not finished:
        return "unfinished", "no end is written: it is climbing still, or was stopped from outside"
    return "interrupted" if finished.get("interrupted") else "finished", safe_text(
        finished.get("reason"), 400
    )


def _notes(sources: PageSources) -> Iterator[str]:
    if lost := sources.chronicle.unreadable_lines:
        yield f"{count(lost, 'line')} of the ledger could not be read and stand aside"
    if sources.is_told_by_commits:
        yield "Rejected candidates, samples, phases, model calls and costs are in the ledger alone"
    if back := sources.taken_back:
        yield f"{count(len(back), 'win')} taken back by later commits; the figures above were measured with all wins"
