"""docs/results/sessions.md tells what its evidence holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "results" / "sessions.md").read_text()
EVIDENCE = json.loads((DOCS / "evidence" / "session_h200.json").read_text())
ROWS = {(row["problem"], row["kind"], row["dtype"]): row for row in EVIDENCE["parity"]}

NAMES = {
    "right": "bf16",
    "`o` of layer 3 times 0.98": "scaled o 3",
    "`q` of layer 12 times 0.98": "scaled q 12",
    "`up` of layer 0 times 0.98": "scaled up 0",
    "`down` of layer 15 times 0.98": "scaled down 15",
    "the head in fp8": "fp8 head",
    "the head in int8, a unit for each row": "int8 head",
    "the head in int8, groups of 64": "int8 head groups of 64",
    "the layers in int8, a unit for each row": "int8 rows",
    "the layers in int8, groups of 64": "int8 groups of 64",
    "the layers in int8, groups of 16": "int8 groups of 16",
    "a layer left out": "layer left out",
}

TABLE = re.findall(r"^\| (.+?) \| (bfloat16|float32) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


def test_the_table_is_whole() -> None:
    assert len(TABLE) == 13
    assert {name for name, *_ in TABLE} == set(NAMES)


@pytest.mark.parametrize(("name", "dtype", "cache", "logits"), TABLE)
def test_a_row_is_what_was_measured(name: str, dtype: str, cache: str, logits: str) -> None:
    kind = "f32" if (name, dtype) == ("right", "float32") else NAMES[name]
    row = ROWS["decode", kind, dtype]
    assert (f"{max(row['keys'], row['values']):.3f}", f"{row['logits']:.3f}") == (cache, logits)


def test_what_is_rejected_elsewhere() -> None:
    for (problem, kind, _), row in ROWS.items():
        worst = max(row[output] for output in ("keys", "values", "tokens", "logits"))
        is_told_by_scales = kind.startswith("scaled") and problem == "decode 16"
        assert (worst <= 1) == (kind in ("bf16", "f32") or is_told_by_scales), (problem, kind)
    scaled = [
        row for (problem, kind, _), row in ROWS.items() if kind.startswith("scaled") and "estimate" in row
    ]
    assert all(0.978 <= 1 + row["estimate"] <= 0.9805 for row in scaled)


def test_the_speeds_are_what_was_measured() -> None:
    ours, theirs = [], []
    for a, b, c, d in EVIDENCE["triton"]["blocks"]:
        ours += [a, d]
        theirs += [b, c]
    assert (
        f"| {64 / (sum(ours) / len(ours)):.0f} |" in PAGE
        and f"| {64 / (sum(theirs) / len(theirs)):.0f} |" in PAGE
    )
    assert f"{EVIDENCE['triton']['speedup']}x" in PAGE
    estimate, low, high = EVIDENCE["noise"]["speedup"]
    assert f"{estimate:.3f}x [{low:.3f}, {high:.3f}]" in PAGE
