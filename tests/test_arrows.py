"""Imports point one way: read off the syntax trees, so that a wrong arrow fails before it is run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ROOMS = {
    "agent": {
        "agent",
        "harness.case",
        "harness.judge",
        "harness.report",
        "harness.sandbox",
        "harness.studies",
    },
    "harness.judge": {
        "harness.judge",
        "harness.candidate",
        "harness.sandbox",
        "harness.device",
        "harness.case",
    },
    "harness.candidate": {"harness.candidate", "harness.sandbox", "harness.case"},
    "harness.sandbox": {"harness.sandbox"},
    "harness.device": {"harness.device"},
    "harness.case": {"harness.case"},
    "harness.report": {"harness.report", "harness.case"},
    "harness.studies": {"harness.studies", "harness.judge", "harness.report", "harness.case"},
    "harness": set(),
}
"""Room -> the rooms it may import besides the ground floor (harness.records, harness.readings, harness.errors,
harness.dtypes)."""

GROUND_FLOOR = {"harness", "harness.records", "harness.readings", "harness.errors", "harness.dtypes"}

HEAVY = {"torch", "numba", "triton", "matplotlib", "scipy", "pandas"}
"""Never in the controller's process, at any depth of its own code."""

WORKSPACE_LOADERS = {"harness/candidate/runner.py", "harness/case/contract.py"}
"""The only files that import code by path: the candidate's runner, and the judge's loader of contracts."""


def _modules() -> list[Path]:
    return sorted(p for top in ("agent", "harness") for p in (ROOT / top).rglob("*.py"))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the package"
            yield node.module or ""


def _room(module: str) -> str:
    parts = module.split(".")
    return "agent" if parts[0] == "agent" else ".".join(parts[:2])


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_every_arrow_points_down(path: Path) -> None:
    name = _name(path)
    allowed = ROOMS.get(_room(name), ROOMS["harness"])
    for module in _imports(path):
        if module.split(".")[0] in ("agent", "harness") and module not in GROUND_FLOOR:
            assert _room(module) in allowed, f"{name} imports {module}"
        assert module.split(".")[0] not in ("tests", "scripts", "cases"), f"{name} imports {module}"


def test_the_controller_stays_light() -> None:
    """Nothing the controller imports, directly or not, brings in a framework."""
    modules = [_name(path) for path in sorted((ROOT / "agent").rglob("*.py"))]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {module.split(".")[0] for module in loaded} & HEAVY


def test_workspaces_are_imported_in_one_place() -> None:
    loaders = {
        str(p.relative_to(ROOT)) for p in _modules() if any("importlib.util" in m for m in _imports(p))
    }
    assert loaders == WORKSPACE_LOADERS


def test_nothing_is_unpickled() -> None:
    for path in _modules():
        assert not {m.split(".")[0] for m in _imports(path)} & {
            "pickle",
            "cloudpickle",
            "marshal",
            "shelve",
            "dill",
        }


def test_broad_excepts_stand_where_they_are_explained() -> None:
    """`except Exception` needs a comment that says why; the linter refuses it without."""
    for path in _modules():
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if "except Exception" in line or "except BaseException" in line:
                explained = "#" in line or "raise" in "".join(
                    path.read_text().splitlines()[number : number + 8]
                )
                assert explained, f"{path}:{number}"
