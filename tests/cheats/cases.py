"""The cases that cheats are judged in: small contracts, each with a start so slow that doing the work once is a gain.

So a candidate that is not seen through would be kept, and an honest one is.
"""

from __future__ import annotations

from pathlib import Path

from tests.cheats.declared import FOLDER, Candidate
from tests.fakes.cases import CONTRACT, SETTINGS, SUITE

SOURCES = FOLDER / "contracts"
FAMILY = "cheats"

IMPORTS = "[__future__, concurrent, functools, itertools, math, os, pathlib, typing, numba, numpy, yaml]"
"""As cases/demo/cpu_matmul has it."""

BUDGETS = "{prepare_seconds: 20, call_seconds: 5, memory_mib: 2048}"
DUEL = "{segment_ms: 6, screen_blocks: 10, pair_blocks: 2, max_pairs: 10, report_pairs: 3}"

CPU = ("affine", "brief", "norm", "softmax", "product", "groups", "joined", "marks")
INTERPRETED = "rows"
"""The case for a GPU; without one its small problems are interpreted."""


def write(root: Path, name: str) -> Path:
    """The case's folder below `root`."""
    folder = root / "cases" / FAMILY / name
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "workspace").mkdir()
    work = name.removesuffix("_eager")  # the same work, launched otherwise
    contract = SOURCES / f"{work}_contract.py"
    (folder / "contract.py").write_text(contract.read_text() if contract.exists() else CONTRACT)
    (folder / "case.yaml").write_text(_settings(name))
    (folder / "benchmarks" / "main.yaml").write_text(_suite(name))
    (folder / "program.md").write_text("Make it fast.\n")
    (folder / "workspace" / "kernel.py").write_text((SOURCES / f"{work}.py").read_text())
    return folder


def write_workspace(root: Path, candidate: Candidate) -> Path:
    """A workspace that holds the candidate alone."""
    folder = root / candidate.file.parent.name / candidate.name / "workspace"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.py").write_text(candidate.source)
    return folder


def _settings(name: str) -> str:
    own = SOURCES / f"{name}.yaml"
    if own.exists():
        return own.read_text()
    changed = {"summary": name, "budgets": BUDGETS, "  imports": IMPORTS, "duel": DUEL}
    lines = (line.partition(":") for line in SETTINGS.strip().splitlines())
    return "".join(f"{key}: {changed.get(key, value.strip())}\n" for key, _, value in lines)


def _suite(name: str) -> str:
    """The groups are timed with even lengths, as a lazy author would guess they always are."""
    return SUITE.replace("normal", "even") if name == "groups" else SUITE
