"""contract.py and benchmarks/ of an imported case, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hillclimb.agent.importers.formats.imported import ArrayPlan, Findings, Plan
from hillclimb.agent.importers.writing.literals import literal


def contract_text(name: str, plan: Plan, found: Findings) -> str:
    """Python text of contract.py."""
    operator = plan.operator
    constants = {constant: constant for constant in found.constants}
    draw = "FromFunction" if found.draw.function else "FromShapes"
    imported = ["DrawnArray", "FromShapes"] if draw == "FromShapes" else ["FromFunction"]
    lines = [
        f'"""What right means for {name}: the operator of source.py, computed in float64 ({plan.format}).',
        "",
        "`hillclimb new-case --from` wrote this file. It is yours now: override any method of the contract below.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from pathlib import Path",
        "",
        *(["import torch", ""] if found.output_dtypes else []),
        f"from hillclimb.harness.sources.draws import {', '.join(imported)}",
        f"from hillclimb.harness.sources.operators import {operator.kind}",
        "from hillclimb.harness.sources.sourced_contract import SourcedContract",
        "",
        'SOURCE = Path(__file__).with_name("source.py")',
    ]
    if constants:
        lines += [
            f"CONSTANTS = {literal(constants, 0, 12)}",
            '"""Sizes of a problem -> constants of source.py."""',
        ]
    lines += ["", "", "class Contract(SourcedContract):", f'    """{_in_docstring(plan.title)}"""', ""]
    given = ", constants=CONSTANTS" if constants else ""
    lines += [
        f"    operator = {_operator(plan, found, given)}",
        f"    draw = {_draw(found, bool(constants))}",
    ]
    lines += [_assigned("problems", found.problems), _assigned("distributions", tuple(found.distributions))]
    if found.unmixed:
        lines += [_assigned("unmixed", found.unmixed)]
    lines += _optional(plan, found)
    return "\n".join(lines) + "\n"


def _operator(plan: Plan, found: Findings, constants: str) -> str:
    operator = plan.operator
    arguments = f"SOURCE, {json.dumps(operator.name)}"
    if operator.kind == "Module":
        arguments += f", {json.dumps(operator.sizes_from)}, {json.dumps(found.mode)}"
    elif not operator.is_unpacked:
        arguments += ", is_unpacked=False"
    return f"{operator.kind}({arguments}{constants})"


def _draw(found: Findings, has_constants: bool) -> str:
    if found.draw.function:
        return (
            f"FromFunction(SOURCE, {json.dumps(found.draw.function)}{', CONSTANTS' if has_constants else ''})"
        )
    arrays = "".join(
        f"            {json.dumps(name)}: {_array(array)},\n" for name, array in found.draw.arrays.items()
    )
    scalars = f"        scalars={literal(tuple(found.draw.scalars))},\n" if found.draw.scalars else ""
    order = literal(tuple(found.draw.order))
    return f"FromShapes(\n        {{\n{arrays}        }},\n{scalars}        order={order},\n    )"


def _array(array: ArrayPlan) -> str:
    text = f"DrawnArray({literal(tuple(array.shape))}, {json.dumps(array.dtype)}"
    if (array.fill, array.low, array.high) != ("normal", 0.0, 1.0):
        text += f", {json.dumps(array.fill)}, {array.low!r}, {array.high!r}"
    return text + ")"


def _optional(plan: Plan, found: Findings) -> list[str]:
    lines = [
        _assigned("input_names", tuple(found.input_names)),
        _assigned("output_names", tuple(found.output_names)),
    ]
    for name in ("attribute_names", "unread", "constant_weights"):
        if value := getattr(found, name):
            lines.append(_assigned(name, tuple(value)))
    if found.output_dtypes:
        dtypes = ", ".join(
            f"{json.dumps(name)}: torch.{dtype}" for name, dtype in found.output_dtypes.items()
        )
        lines.append(f"    output_dtypes = {{{dtypes}}}")
    if plan.rule:
        lines.append(f"    rule = (SOURCE, {json.dumps(plan.rule)})")
    if found.excused:
        lines.append(_assigned("excused", found.excused))
    if found.is_in_place:
        lines.append("    is_in_place = True")
    if found.neighbours:
        lines.append(_assigned("neighbours", found.neighbours))
    return lines


def _assigned(name: str, value: Any) -> str:
    """A class attribute."""
    return f"    {name} = {literal(value, 4, len(name) + 3)}"


def _in_docstring(text: str) -> str:
    plain = text.replace("\\", "/").replace('"', "'")
    return f"{plain}." if plain else "An imported operator."


def suite_text(problems: Sequence[str], doc: str) -> str:
    """One file of benchmarks/."""
    return f"doc: {json.dumps(doc)}\nproblems: {json.dumps(list(problems))}\ndistribution: source\n"
