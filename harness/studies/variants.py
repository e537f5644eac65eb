"""The kernels of one case, and copies of its files in which each of them is what the judge is handed.

A variant is a module of the workspace that defines the entry's function: `baseline`, `optimized`, and `kernel` itself
once a climb has written one. `torch` is the case's yardstick.py, a fixed file with the operator in plain torch: it may
call what a candidate may not, and is compiled by torch.compile before it is timed, unless it says `COMPILED = False`
(torch.compiler.disable does not keep torch.compile from a function that it is handed itself).
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.yardstick import YARDSTICK_FILE, is_compiled
from hillclimb.harness.errors import CaseError
from hillclimb.harness.records import Side
from hillclimb.harness.studies.study import BASELINE

YARDSTICK = "torch"
"""The variant made of yardstick.py."""

ENTRY = '"""Hands the judge one of this workspace\'s kernels."""\n\nfrom {module} import {function} as {function}\n'

INDUCTOR_FOLDER = "inductor"
"""Below a process's TMPDIR: where torch.compile leaves what it makes of a yardstick."""

CACHE = f"{INDUCTOR_FOLDER}.tar"
"""In a yardstick's workspace: what hillclimb.harness.studies.yardstick has compiled of it."""

MODE = "max-autotune-no-cudagraphs"
"""Of torch.compile, in a file of its own: with a full cache it tries nothing out, and must not read as if it did."""

COMPILED_ENTRY_SOURCE = '''"""The plain operator through torch.compile, out of a cache that is filled already."""

import os
import shutil
from pathlib import Path

cache, ready = Path(os.environ["TMPDIR"], "{made}"), Path(__file__).with_name("{cache}")
cache.mkdir(exist_ok=True)
if ready.exists():
    shutil.unpack_archive(ready, cache)
os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = str(cache), str(cache / "triton")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from yardstick import {function} as plain

torch.set_float32_matmul_precision("highest")
{function} = torch.compile(plain, mode=Path(__file__).with_name("mode").read_text(), dynamic=False)
'''

COPY_IGNORE = shutil.ignore_patterns("__pycache__", ".*")


@dataclass(frozen=True)
class StagedCase:
    """A case copied aside: `folder` is the case's, `sides` has a workspace for each variant by its name."""

    folder: Path
    sides: dict[str, Side]
    suites: dict[str, str]
    """Of each timed problem, the suite in which it is alone."""
    yardstick_error: str = ""
    """Why the yardstick could not be compiled; it is then among the sides no more."""
    yardstick_note: str = ""
    """What the yardstick that is timed was chosen among."""


def list_variants(case: Case) -> tuple[str, ...]:
    """Names of the workspace's own variants, the baseline first. Raises CaseError where there is no baseline."""
    _, function = case.settings.entry.split(":")
    found = [path.stem for path in sorted(case.workspace.glob("*.py")) if _defines(path, function)]
    if BASELINE not in found:
        remedy = f"define {function} there"
        raise CaseError(case.workspace / f"{BASELINE}.py", function, "is not defined", remedy)
    return (BASELINE, *(name for name in found if name != BASELINE))


@contextmanager
def stage_case(case: Case, *, timed: Collection[str] = ()) -> Iterator[StagedCase]:
    """A copy of the case with a workspace for each variant, for as long as the block lasts.

    Each problem to be timed has a suite of its own, under the objective's distribution. Where there is any, the case's
    yardstick is among the variants, if it has one.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-study-") as name:
        root = Path(name)
        root.chmod(0o755)  # a judge may run candidates under another user
        folder = root / "cases" / case.name
        shutil.copytree(case.folder, folder, ignore=COPY_IGNORE)
        sides = {variant: _side(case, root, variant) for variant in list_variants(case)}
        suites: dict[str, str] = {}
        if timed:
            suites = _add_suites(case, folder, timed)
            if (folder / YARDSTICK_FILE).is_file():
                sides[YARDSTICK] = _yardstick(case, root, folder)
        yield StagedCase(folder, sides, suites)


def _defines(path: Path, function: str) -> bool:
    """Whether a module defines the function itself; importing it from another does not count."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise CaseError(path, "", f"is no Python ({error})", "mend it") from None
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


def _side(case: Case, root: Path, variant: str) -> Side:
    """The workspace with the variant behind its entry."""
    file, function = case.settings.entry.split(":")
    tree = root / variant / "workspace"
    shutil.copytree(case.workspace, tree, ignore=COPY_IGNORE)
    if variant != Path(file).stem:
        (tree / file).write_text(ENTRY.format(module=variant, function=function), encoding="utf-8")
    return Side(tree=str(tree))


def _yardstick(case: Case, root: Path, folder: Path) -> Side:
    file, function = case.settings.entry.split(":")
    tree = root / YARDSTICK / "workspace"
    tree.mkdir(parents=True)
    shutil.copy(folder / YARDSTICK_FILE, tree)
    if _is_compiled(folder / YARDSTICK_FILE):
        (tree / file).write_text(
            COMPILED_ENTRY_SOURCE.format(function=function, made=INDUCTOR_FOLDER, cache=CACHE),
            encoding="utf-8",
        )
        (tree / "mode").write_text(MODE, encoding="utf-8")
    else:
        module = Path(YARDSTICK_FILE).stem
        (tree / file).write_text(ENTRY.format(module=module, function=function), encoding="utf-8")
    return Side(tree=str(tree), is_yardstick=True)


def _is_compiled(yardstick: Path) -> bool:
    """Of one that is no Python, compiling it tells."""
    try:
        return is_compiled(yardstick.read_bytes())
    except (SyntaxError, ValueError):
        return True


def _add_suites(case: Case, folder: Path, problems: Collection[str]) -> dict[str, str]:
    """A suite for every problem; its name by the problem's."""
    distribution = case.suites[case.settings.objective.suite].distribution
    suites = {problem: f"alone-{number}" for number, problem in enumerate(problems)}
    for problem, name in suites.items():
        suite = {"problems": [problem], "distribution": distribution}
        (folder / "benchmarks" / f"{name}.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
    return suites


def timed_problems(case: Case) -> tuple[str, ...]:
    """Every problem of every suite, once: the objective's first, then the guardrails', then the others'."""
    order = [*case.judged_suites, *case.suites]
    return tuple(dict.fromkeys(name for suite in order for name in case.suites[suite].problems))
