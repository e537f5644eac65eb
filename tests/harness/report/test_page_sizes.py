"""The page keeps to few sizes of text."""

from __future__ import annotations

import re
from pathlib import Path

CSS = (Path(__file__).parents[3] / "harness" / "report" / "page.css").read_text()


def test_there_are_five_sizes_of_text() -> None:
    used = re.findall(r"font(?:-size)?:\s*([^;}]+)", CSS)
    sizes = {value.split("/")[0].strip() for value in used} - {"inherit"}
    assert sizes == {f"var(--{name})" for name in ("label", "small", "text", "title", "display")}
    for name in ("label", "small", "text", "title", "display"):
        assert CSS.count(f"--{name}:") == 1
