"""docs/results/sessions.md tells what its evidence holds."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "results" / "sessions.md").read_text()
EVIDENCE = json.loads((DOCS / "evidence" / "session_h200.json").read_text())
ROWS = EVIDENCE["parity"]["decode"]

NAMES = {
    ("right", "bfloat16"): "right",
    ("right", "float32"): "right, float32",
    ("`o` of layer 1 times 0.98", "bfloat16"): "o of layer 1 times 0.98",
    ("`q` of layer 1 times 0.98", "bfloat16"): "q of layer 1 times 0.98",
    ("`down` of layer 1 times 0.98", "bfloat16"): "down of layer 1 times 0.98",
    ("the head in fp8", "bfloat16"): "head in fp8",
    ("the head in int8, groups of 64", "bfloat16"): "head in int8, groups of 64",
    ("the layers in int8, a unit for each row", "bfloat16"): "layers in int8, rows",
    ("the layers in int8, groups of 64", "float32"): "layers in int8, groups of 64, float32",
    ("the layers in int8, groups of 16", "float32"): "layers in int8, groups of 16, float32",
    ("a layer left out", "bfloat16"): "a layer left out",
}

TABLE = re.findall(
    r"^\| (.+?) \| (bfloat16|float32) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE
)


def test_the_table_is_whole() -> None:
    assert {(name, dtype) for name, dtype, *_ in TABLE} == set(NAMES)
    assert set(NAMES.values()) == set(ROWS)


@pytest.mark.parametrize(("name", "dtype", "cache", "tokens", "logits"), TABLE)
def test_a_row_is_what_was_measured(name: str, dtype: str, cache: str, tokens: str, logits: str) -> None:
    row = ROWS[NAMES[name, dtype]]
    measured = max(row["keys"], row["values"]), row["tokens"], row["logits"]
    assert tuple(f"{share:.3f}" for share in measured) == (cache, tokens, logits)


def test_what_is_rejected_elsewhere() -> None:
    for problem, rows in EVIDENCE["parity"].items():
        for name, row in rows.items():
            worst = max(row[output] for output in ("keys", "values", "tokens", "logits"))
            is_told_by_scales = "0.98" in name and problem != "decode"
            assert (worst <= 1) == (name.startswith("right") or is_told_by_scales), (problem, name)


def test_the_speeds_are_what_was_measured() -> None:
    blocks = EVIDENCE["screening"]["blocks"]
    for letter in "AB":
        seconds = [
            s for b in blocks for s, side in zip(b["events"], b["order"], strict=True) if side == letter
        ]
        assert f"| {64 / (sum(seconds) / len(seconds)):.0f} |" in PAGE
    assert f"{EVIDENCE['screening']['speedup']:.3f}x" in PAGE
    estimate, low, high = EVIDENCE["noise"]["speedup"]
    assert f"{estimate:.3f}x [{low:.3f}, {high:.3f}]" in PAGE
    assert f"scatters by {EVIDENCE['noise']['pair_sd']:.2%}" in PAGE


def test_what_a_confirmation_takes_is_what_was_measured() -> None:
    deciding = EVIDENCE["deciding"]
    ends = [deciding["first_pair_began"], *deciding["seconds_at_end_of_pair"]]
    took = [after - before for before, after in itertools.pairwise(ends)]
    assert f"took {min(took):.0f} to {max(took):.0f} s" in PAGE
    seen = deciding["speedup_so_far"]
    assert f"saw {min(seen):.2f}x to {max(seen):.2f}x" in PAGE
