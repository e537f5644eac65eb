"""The cases that cheats are judged in: small contracts, each with a start so slow that doing the work once is a gain.

So a candidate that is not seen through would be kept, and an honest one is.
"""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.policy.policy import check_policy
from tests.cheats.declared import FOLDER, Candidate
from tests.fakes.cases import SETTINGS, SUITE

SOURCES = FOLDER / "contracts"
FAMILY = "cheats"

IMPORTS = (
    "[__future__, collections, concurrent, contextlib, dataclasses, enum, functools, itertools, math, operator, os, "
    "pathlib, typing, numba, numpy, yaml]"
)
"""As cases/demo/cpu_matmul has it, and whatever else of the standard library has a list of what may be used."""

WITHOUT_NUMBA = IMPORTS.replace(" numba,", "")

BUDGETS = "{prepare_seconds: 20, call_seconds: 5, memory_mib: 2048}"
DUEL = "{segment_ms: 6, screen_blocks: 10, pair_blocks: 2, max_pairs: 10, report_pairs: 3}"

CPU = (
    "affine",
    "brief",
    "norm",
    "softmax",
    "product",
    "groups",
    "joined",
    "marks",
    "codes",
    "first",
    "smooth",
    "decay",
    "totals",
    "dots",
    "quotients",
)
SAME_WORK = {"brief": "affine"}
INTERPRETED = "rows"
"""The case for a GPU; without one its small problems are interpreted."""


def imports_for(candidate: Candidate) -> str:
    """Without numba for one that does not name it: what a process imports is most of what a gate takes."""
    return IMPORTS if any(b"numba" in data for data in candidate.files.values()) else WITHOUT_NUMBA


def write(root: Path, name: str, imports: str = IMPORTS) -> Path:
    """The case's folder below `root`."""
    folder = root / "cases" / FAMILY / name
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "workspace").mkdir()
    work = name.removesuffix("_eager")  # the same work, launched otherwise
    contract = SOURCES / f"{SAME_WORK.get(work, work)}_contract.py"
    (folder / "contract.py").write_text(contract.read_text())
    (folder / "case.yaml").write_text(_settings(name, imports))
    (folder / "benchmarks" / "main.yaml").write_text(_suite(name))
    (folder / "program.md").write_text("Make it fast.\n")
    (folder / "workspace" / "kernel.py").write_text((SOURCES / f"{work}.py").read_text())
    return folder


def write_workspace(root: Path, candidate: Candidate) -> Path:
    """A workspace that holds the candidate alone."""
    folder = root / candidate.place.parent.name / candidate.name / "workspace"
    for name, data in candidate.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


def read_source(root: Path, candidate: Candidate) -> None:
    """The reading of its source, with nothing behind it. Raises CandidateFault where that refuses it."""
    case = Case(write(root, candidate.declared.case))
    check_policy(write_workspace(root, candidate), case.settings.policy)


def _settings(name: str, imports: str) -> str:
    own = SOURCES / f"{name}.yaml"
    if own.exists():
        return own.read_text()
    changed = {"summary": name, "budgets": BUDGETS, "  imports": imports, "duel": DUEL}
    lines = (line.partition(":") for line in SETTINGS.strip().splitlines())
    return "".join(f"{key}: {changed.get(key, value.strip())}\n" for key, _, value in lines)


def _suite(name: str) -> str:
    """The groups are timed with even lengths, as a lazy author would guess they always are."""
    return SUITE.replace("normal", "even") if name == "groups" else SUITE
