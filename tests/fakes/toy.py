"""A toy case whose speed is written in its files, for the simulated judge: it is never run."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """\
schema: 1
summary: a landscape of one number and three knobs
entry: "kernel.py:QUALITY"
mutable: ["*.py", "docs/**"]
objective: {minimum_effect: 0.02}
budgets: {candidates: 50, seconds: 1000000, patience: 50}
"""

KNOBS = """\
# what the toy can be tuned by
TILE: {type: log-int, low: 8, high: 64, default: 8, doc: best at 32}
UNROLL: {type: choice, choices: [1, 2, 4], default: 1}
TRICK: {type: bool, default: false, doc: right only while set from outside}
"""

TUNING = """\
import os

TILE, UNROLL, TRICK = (os.environ.get(name) for name in ("TILE", "UNROLL", "TRICK"))
"""
"""Names the knobs, so that turning them counts as a change; the simulated judge reads their values by itself."""

FILES = {
    "case.yaml": SETTINGS,
    "contract.py": "# the simulated judge needs no contract\n",
    "program.md": "Make the number in kernel.py larger.\n",
    "benchmarks/main.yaml": "problems: [only]\ndistribution: normal\n",
    "workspace/kernel.py": "QUALITY = 1.0\n",
    "workspace/tuning.py": TUNING,
    "workspace/knobs.yaml": KNOBS,
    "workspace/docs/notes.md": "nothing yet\n",
}


def write_toy(root: Path) -> Path:
    """The case folder below `root`, as cases/demo/toy."""
    folder = root / "cases" / "demo" / "toy"
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def kernel(quality: float, flaw: str = "") -> str:
    """A kernel.py of the toy: its speed, and the reason for which the gate or a guardrail rejects it."""
    return f"QUALITY = {quality}\n" + (f"FLAW = {flaw!r}\n" if flaw else "")
