"""Raw samples of a candidate, boiled down to a few figures for each stage and suite."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from hillclimb.harness.report.page_ledger import LedgerObject, as_list, as_object, finite_number, safe_text

StageRow = list[str | int | float | None]
"""[stage, suite, pairs, blocks, dropped, median speedup, smallest, largest, most steal, most others]."""


def read_stages(path: Path) -> list[StageRow]:
    """One row a stage and suite in the order measured; none where the file is missing or cannot be read."""
    try:
        samples = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    grouped: dict[tuple[str, str], list[LedgerObject]] = {}
    for pair in _pairs(as_object(samples)):
        grouped.setdefault((safe_text(pair.get("stage"), 40), safe_text(pair.get("suite"), 80)), []).append(
            pair
        )
    return [_summarise(stage, suite, pairs) for (stage, suite), pairs in grouped.items()]


def _pairs(samples: LedgerObject) -> Iterator[LedgerObject]:
    for part in ("screening", "confirmation"):
        yield from map(as_object, as_list(as_object(samples.get(part)).get("pairs")))


def _summarise(stage: str, suite: str, pairs: list[LedgerObject]) -> StageRow:
    blocks = [[as_object(block) for block in as_list(pair.get("blocks"))] for pair in pairs]
    values = [statistics.median(found) for found in (_speedups(each) for each in blocks) if found]
    spread = (statistics.median(values), min(values), max(values)) if values else (None, None, None)
    dropped = sum(int(finite_number(pair.get("dropped")) or 0) for pair in pairs)
    places = [as_object(block.get("environment")) for each in blocks for block in each]
    most = [
        max([finite_number(place.get(key)) or 0.0 for place in places] or [0.0])
        for key in ("steal", "others")
    ]
    return [stage, suite, len(pairs), len(places), dropped, *map(_short, spread), *map(_short, most)]


def _speedups(blocks: list[LedgerObject]) -> list[float]:
    """B's time over A's in each block, whichever way round it ran, by the clock that a pair is read by."""
    found = []
    for block in blocks:
        times = [
            finite_number(value) for value in as_list(block.get("events")) or as_list(block.get("seconds"))
        ]
        if len(times) == 4 and all(time is not None and time > 0 for time in times):
            outer, inner = times[0] * times[3], times[1] * times[2]  # type: ignore[operator]
            found.append(math.sqrt(inner / outer if block.get("order") == "ABBA" else outer / inner))
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
