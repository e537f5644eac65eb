"""GPU MODE's tasks: a folder with task.yml and reference.py, which has generate_input and ref_kernel."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

from hillclimb.agent.importers.formats.imported import DrawPlan, ImportRequest, OperatorPlan, Plan, Sizes
from hillclimb.agent.importers.formats.kernelbench import names_needed
from hillclimb.agent.importers.formats.python_source import one_line, parameters_of, parse_file, read_text
from hillclimb.agent.importers.formats.slicing import definitions, imported_modules
from hillclimb.harness.errors import UsageError

LABEL = "a GPU MODE task: a folder with task.yml and reference.py"

COMPARISONS = {"match_reference", "make_match_reference", "verbose_allclose", "verbose_allequal"}
"""Functions that compare with the reference; a check that uses none of them has a rule of its own."""


def can_read(request: ImportRequest) -> bool:
    return not request.name and _folder(request.path).joinpath("task.yml").is_file()


def read(request: ImportRequest) -> Plan:
    folder = _folder(request.path)
    task = _task(folder / "task.yml")
    files = _files(folder, task)
    reference = files.get("reference.py", folder / "reference.py")
    tree = parse_file(reference)
    missing = {"generate_input", "ref_kernel"} - definitions(tree).keys()
    if missing:
        raise UsageError(
            f"{reference} has no {', '.join(sorted(missing))}; import it as FILE.py:function instead"
        )
    problems = {**_problems(task, "tests", "test"), **_problems(task, "benchmarks", "benchmark")}
    if not problems:
        raise UsageError(f"{folder / 'task.yml'} names no tests and no benchmarks; add a test with its sizes")
    rule, told = _check(tree)
    whole = [key for key, value in next(iter(problems.values())).items() if type(value) is int]
    return Plan(
        format="GPU MODE task",
        title=one_line(str(task.get("description", ""))) or folder.name,
        source=read_text(reference),
        beside=_beside(read_text(reference), folder, files),
        operator=OperatorPlan(kind="Function", name="ref_kernel", is_unpacked=False),
        draw=DrawPlan(function="generate_input"),
        problems=problems,
        timed=[key for key in problems if key.startswith("benchmark")] or list(problems),
        changeable=whole,
        argument_names=unpacked_names(tree, "ref_kernel"),
        has_own_sizes=True,
        rule=rule,
        told=[*told, *_left_out(folder, task, files)],
    )


def _folder(path: Path) -> Path:
    return path.parent if path.name == "task.yml" else path


def _task(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is no YAML ({one_line(str(error))}); mend it") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no mapping; write tests: and benchmarks:")
    return found


def _files(folder: Path, task: dict[str, Any]) -> dict[str, Path]:
    """The task's Python files by the names that they import one another under."""
    listed = [entry for entry in task.get("files") or [] if isinstance(entry, dict)]
    found = {str(entry.get("name")): folder / str(entry.get("source")) for entry in listed}
    return {key: path for key, path in found.items() if path.suffix == ".py" and path.is_file()}


def _beside(text: str, folder: Path, files: dict[str, Path]) -> dict[str, str]:
    """What the reference imports of the task, and what that imports."""
    found: dict[str, str] = {}
    due = sorted(imported_modules(text))
    while due:
        key = f"{due.pop()}.py"
        path = files.get(key, folder / key)
        if key not in found and path.is_file():
            found[key] = read_text(path)
            due += sorted(imported_modules(found[key]))
    return found


def _problems(task: dict[str, Any], key: str, prefix: str) -> dict[str, Sizes]:
    """Those that differ, by name; a seed is no part of them."""
    found: list[Sizes] = []
    for spec in task.get(key) or []:
        sizes = (
            {name: value for name, value in spec.items() if name != "seed"} if isinstance(spec, dict) else {}
        )
        if sizes and sizes not in found:
            found.append(sizes)
    return {f"{prefix}_{number}": sizes for number, sizes in enumerate(found, 1)}


def unpacked_names(tree: ast.Module, function: str) -> list[str]:
    """The names that a function gives to the parts of its one argument, else that argument's own."""
    names = parameters_of(tree, function)
    for node in ast.walk(definitions(tree)[function]):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Name(id=given)) if given in names[:1]:
                if all(isinstance(part, ast.Name) for part in parts):
                    return [part.id for part in parts if isinstance(part, ast.Name)]
    return names


def _check(tree: ast.Module) -> tuple[str, list[str]]:
    """The name of a rule of the task's own, and what is to be told of its check."""
    check = "check_implementation"
    found = definitions(tree).get(check)
    if found is None:
        return "", []
    used = names_needed(tree, check) if isinstance(found, ast.FunctionDef) else {"match_reference"}
    if isinstance(found, ast.FunctionDef) and not used & COMPARISONS:
        return check, [f"{check}: it is a rule of its own, and decides in place of gate.error_budget"]
    said = ", ".join(
        f"{k.arg}={ast.unparse(k.value)}"
        for n in ast.walk(found)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg in ("rtol", "atol")
    )
    tolerance = f" ({said})" if said else ""
    return "", [
        f"{check}{tolerance}: not carried over; gate.error_budget is the rule, in units of float rounding"
    ]


def _left_out(folder: Path, task: dict[str, Any], files: dict[str, Path]) -> list[str]:
    told = ["seeds: not carried over; the judge draws secret ones"]
    keys = [
        k for k in ("test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "gpus") if k in task
    ]
    if keys:
        told.append(f"{', '.join(keys)}: not carried over; budgets and duel in case.yaml say it here")
    if (folder / "submission.py").is_file():
        told.append("submission.py: not carried over; the baseline is ref_kernel")
    return told
