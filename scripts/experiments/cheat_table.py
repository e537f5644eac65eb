"""Both rates of scripts/experiments/cheat_rates.py as a table: a line for every family of cheats, one for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hillclimb.harness.statistics.evidence import upper_limit

ALL = "all"
ACCEPTED = ("kept", "passed")
"""What a judge answers of a candidate that it does not refuse; passed: where the gate is all that is asked."""
HEADER = (
    "family",
    "cheats",
    "kept",
    "up to",
    "own reason",
    "reading alone",
    "no reading",
    "honest",
    "refused",
    "up to",
)


@dataclass(frozen=True)
class FamilyRates:
    """Of one family: cheats kept, honest candidates refused, and what each wall does without the other."""

    family: str
    cheats: int
    kept: int
    kept_limit: float | None
    """Exact one-sided upper 95 % limit of the rate (Clopper and Pearson)."""
    for_own_reason: int
    refused_by_reading_alone: int
    """By reading the source, nothing being run."""
    refused_unread: int
    """Where nobody reads the source: whatever the reading lets through, and the others judged again."""
    unread: int
    """So many were judged without the reading, or would be judged the same with it."""
    honest: int
    refused: int
    refused_limit: float | None


def families(rows: Sequence[dict[str, Any]]) -> list[FamilyRates]:
    """By name; the last one is all of them together."""
    names = sorted({row["family"] for row in rows})
    found = [_rates(name, [row for row in rows if row["family"] == name]) for name in names]
    return [*found, _rates(ALL, rows)]


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The table, and by name whatever is not as it should be."""
    lines = [HEADER, *map(_cells, families(rows))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    texts = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    texts += [
        f"{_name(row)}: {row['got']}, expected {' or '.join(row['expected'])}"
        for row in rows
        if not row["as_expected"]
    ]
    return "\n".join(texts)


def _rates(family: str, rows: Sequence[dict[str, Any]]) -> FamilyRates:
    cheats = [row for row in rows if not row["honest"] and not row["unread"]]
    again = [row for row in rows if row["unread"]]
    through = [row for row in cheats if not row["read_alone"]]
    honest = [row for row in rows if row["honest"]]
    kept, refused = _accepted(cheats), len(honest) - sum(row["as_expected"] for row in honest)
    return FamilyRates(
        family=family,
        cheats=len(cheats),
        kept=kept,
        kept_limit=upper_limit(kept, len(cheats)) if cheats else None,
        for_own_reason=sum(row["as_expected"] for row in cheats),
        refused_by_reading_alone=sum(row["read_alone"] for row in cheats),
        refused_unread=len(again) + len(through) - _accepted([*again, *through]),
        unread=len(again) + len(through),
        honest=len(honest),
        refused=refused,
        refused_limit=upper_limit(refused, len(honest)) if honest else None,
    )


def _accepted(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["got"] in ACCEPTED for row in rows)


def _cells(rates: FamilyRates) -> tuple[str, ...]:
    return (
        rates.family,
        str(rates.cheats),
        str(rates.kept),
        _percent(rates.kept_limit),
        f"{rates.for_own_reason} of {rates.cheats}",
        f"{rates.refused_by_reading_alone} of {rates.cheats}",
        f"{rates.refused_unread} of {rates.unread}",
        str(rates.honest),
        str(rates.refused),
        _percent(rates.refused_limit),
    )


def _percent(limit: float | None) -> str:
    return "-" if limit is None else f"{100 * limit:.2g} %"


def _name(row: dict[str, Any]) -> str:
    return f"{row['family']}/{row['key']}"
