"""A study's report.html: one self-contained page made of its table and pictures; a view, drawn anew at will."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from hillclimb.harness.report.page import environment, style
from hillclimb.harness.studies import times
from hillclimb.harness.studies.plots import ROOFLINE, SPEEDUPS, draw, one_row_per_call
from hillclimb.harness.studies.times import TimesRow

PAGE = "report.html"

_PARTS = Path(__file__).parent


@dataclass(frozen=True)
class Summary:
    """One variant over all problems that it was duelled on."""

    variant: str
    problems: int
    speedup: float | None
    """Geometric mean over the problems."""
    over_torch: float | None
    copy_share: float | None
    """Geometric mean of the share of the device's copy bandwidth."""


def write_page(folder: Path) -> Path:
    """Draw the pictures and write the page of the study in `folder`. Raises UsageError where the table is none."""
    known, rows = times.read(folder / times.TABLE_FILE)
    draw(folder)
    cases: dict[str, list[TimesRow]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    html = (
        environment(_PARTS)
        .get_template("page.html.j2")
        .render(
            study=folder.name,
            known=known,
            cases=cases,
            summaries=summarise(one_row_per_call(rows)),
            pictures={name: _embed(folder / name) for name in (SPEEDUPS, ROOFLINE)},
            style=style(),
        )
    )
    target = folder / PAGE
    fresh = target.with_name(f".{PAGE}.new")
    fresh.write_bytes(html.encode(errors="replace"))
    return fresh.replace(target)


def summarise(calls: Sequence[TimesRow]) -> list[Summary]:
    """Each variant besides the ones that the others are measured against."""
    by_variant: dict[str, list[TimesRow]] = {}
    for call in calls:
        if call.speedup is not None or call.over_torch is not None:
            by_variant.setdefault(call.variant, []).append(call)
    return [
        Summary(
            variant,
            len(of_it),
            _mean([call.speedup for call in of_it]),
            _mean([call.over_torch for call in of_it]),
            _mean([call.copy_share for call in of_it]),
        )
        for variant, of_it in by_variant.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return geometric_mean(there) if there else None


def _embed(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
