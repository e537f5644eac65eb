"""KernelBench's problems: a Python file with a Model, get_inputs and get_init_inputs."""

from __future__ import annotations

import ast

from hillclimb.agent.importers.formats.imported import DrawPlan, ImportRequest, OperatorPlan, Plan
from hillclimb.agent.importers.formats.python_source import docstring_of, parameters_of, parse_file, read_text
from hillclimb.agent.importers.formats.slicing import definitions, needed, used_names, whole_constants

LABEL = "a KernelBench problem: a .py file with Model, get_inputs and get_init_inputs"

MIN_SIZE = 16
"""A constant below it that the module is made with is no size but a part of what is computed."""


def can_read(request: ImportRequest) -> bool:
    if request.name or request.path.suffix != ".py" or not request.path.is_file():
        return False
    tree = parse_file(request.path)
    return {"Model", "get_inputs", "get_init_inputs"} <= definitions(tree).keys()


def read(request: ImportRequest) -> Plan:
    tree = parse_file(request.path)
    constants = whole_constants(tree)
    operator = names_needed(tree, "Model")
    drawn, made = (names_needed(tree, part) for part in ("get_inputs", "get_init_inputs"))
    sizes = {n: v for n, v in constants.items() if n in drawn | made}
    fixed = [n for n in sizes if n in made]
    changeable = [n for n in sizes if n not in operator and (n not in made or sizes[n] >= MIN_SIZE)]
    told = []
    if not changeable:
        told.append("sizes: no module-level whole number could be changed, so there are no small problems")
    return Plan(
        format="KernelBench problem",
        title=docstring_of(tree, "Model") or request.path.stem.replace("_", " "),
        source=read_text(request.path),
        operator=OperatorPlan(kind="Module", name="Model", sizes_from="get_init_inputs"),
        draw=DrawPlan(function="get_inputs"),
        problems={"public": sizes},
        timed=["public"],
        constants=list(sizes),
        changeable=changeable,
        fixed=fixed,
        argument_names=parameters_of(tree, "Model", "forward"),
        attribute_names=parameters_of(tree, "Model", "__init__"),
        told=told,
    )


def names_needed(tree: ast.Module, root: str) -> set[str]:
    """Names that a definition reads, directly or not."""
    return {name for statement in needed(tree, [root]) for name in used_names(statement)}
