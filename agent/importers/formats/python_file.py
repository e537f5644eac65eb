"""A function of NumPy arrays or torch tensors, or a torch.nn.Module, with example arguments."""

from __future__ import annotations

import ast

from hillclimb.agent.importers.formats.example_text import parse_examples
from hillclimb.agent.importers.formats.imported import DrawPlan, ImportRequest, OperatorPlan, Plan, Sizes
from hillclimb.agent.importers.formats.kernelbench import MIN_SIZE, names_needed
from hillclimb.agent.importers.formats.python_source import docstring_of, parameters_of, parse_file, read_text
from hillclimb.agent.importers.formats.slicing import (
    definitions,
    imported_modules,
    slice_operator,
    whole_constants,
)
from hillclimb.harness.errors import UsageError

LABEL = "a function or a torch.nn.Module: FILE.py:name, with example_inputs() or EXAMPLES in it, or --example"

DRAWS = ("example_inputs", "get_inputs", "EXAMPLES")
SIZES = ("example_sizes", "get_init_inputs")
"""Functions that give what a module is made with."""


def can_read(request: ImportRequest) -> bool:
    return bool(request.name) and request.path.suffix == ".py" and request.path.is_file()


def read(request: ImportRequest) -> Plan:
    tree, text = parse_file(request.path), read_text(request.path)
    known = definitions(tree)
    found = known.get(request.name)
    if not isinstance(found, ast.FunctionDef | ast.ClassDef):
        names = [n for n, s in known.items() if isinstance(s, ast.FunctionDef | ast.ClassDef)]
        raise UsageError(
            f"{request.path} has no function or class {request.name!r}; it has {', '.join(names)}"
        )
    is_module = isinstance(found, ast.ClassDef)
    needs = slice_operator(text, [request.name, *(n for n in DRAWS if n in known)], {})
    uses_torch = "torch" in imported_modules(needs)
    method = "forward" if is_module else ""
    sizes_from = next((n for n in SIZES if n in known), "") if is_module else ""
    draw = next((n for n in DRAWS if n in known), "")
    if not draw and not request.examples:
        raise UsageError(
            f"{request.path} has no example_inputs() and no EXAMPLES; write one, or give --example 'x=float32[64,64]'"
        )
    arguments = parameters_of(tree, request.name, method)
    sizes, changeable, fixed = _sizes(tree, request.name, "" if request.examples else draw, sizes_from)
    return Plan(
        format="torch module" if is_module else "torch function" if uses_torch else "NumPy function",
        title=docstring_of(tree, request.name) or request.name,
        source=text,
        operator=OperatorPlan(
            kind="Module" if is_module else "Function" if uses_torch else "NumpyFunction",
            name=request.name,
            sizes_from=sizes_from,
        ),
        draw=DrawPlan(function="" if request.examples else draw),
        problems={"public": sizes},
        timed=["public"],
        constants=list(sizes),
        changeable=changeable,
        fixed=fixed,
        argument_names=arguments,
        attribute_names=parameters_of(tree, request.name, "__init__") if is_module else [],
        default_device="cuda" if uses_torch or is_module else "cpu",
        may_redraw=bool(arguments) and not sizes_from,
        example=parse_examples(request.examples, arguments),
    )


def _sizes(tree: ast.Module, name: str, draw: str, sizes_from: str) -> tuple[Sizes, list[str], list[str]]:
    """Whole constants that the examples are made with, those that may change, and those the module is made with."""
    drawn = names_needed(tree, draw) if draw else set()
    made = names_needed(tree, sizes_from) if sizes_from else set()
    own = names_needed(tree, name)
    sizes = {n: v for n, v in whole_constants(tree).items() if n in drawn | made and n not in own}
    return (
        dict(sizes),
        [n for n in sizes if n not in made or sizes[n] >= MIN_SIZE],
        [n for n in sizes if n in made],
    )
