"""flashinfer-bench's definitions: a JSON of axes, inputs, outputs and a reference, with workloads beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hillclimb.agent.importers.formats.imported import (
    ArrayPlan,
    DrawPlan,
    ImportRequest,
    OperatorPlan,
    Plan,
    Sizes,
)
from hillclimb.agent.importers.formats.python_source import one_line, read_text
from hillclimb.harness.errors import UsageError

LABEL = "a flashinfer-bench definition: a .json with axes, inputs, outputs and reference"

MAX_WORKLOADS = 6
"""Timed problems; they have equal weight, and each is gated under every distribution."""

USUAL_SIZES = (1, 37, 128)
"""Of a variable axis, where no workload says any."""

FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")


def can_read(request: ImportRequest) -> bool:
    if request.name or request.path.suffix != ".json" or not request.path.is_file():
        return False
    try:
        found = json.loads(read_text(request.path))
    except ValueError:
        return False
    return isinstance(found, dict) and {"axes", "inputs", "outputs", "reference"} <= found.keys()


def read(request: ImportRequest) -> Plan:
    definition = json.loads(read_text(request.path))
    axes = definition["axes"]
    arrays, scalars = _inputs(request.path, definition)
    workloads, told = _workloads(request.path, definition, scalars)
    consts = {axis: body["value"] for axis, body in axes.items() if body.get("type") == "const"}
    problems = {f"workload_{number}": {**consts, **sizes} for number, sizes in enumerate(workloads, 1)}
    if definition.get("constraints"):
        told.append(f"constraints: not carried over: {'; '.join(map(str, definition['constraints']))}")
    return Plan(
        format="flashinfer-bench definition",
        title=one_line(str(definition.get("description") or definition.get("name"))),
        source=str(definition["reference"]),
        operator=OperatorPlan(kind="Function", name="run"),
        draw=DrawPlan(arrays=arrays, scalars=scalars, order=list(definition["inputs"])),
        problems=problems,
        timed=list(problems),
        changeable=list(axes),
        fixed=list(consts),
        argument_names=list(definition["inputs"]),
        output_names=list(definition["outputs"]),
        told=told,
    )


def _inputs(path: Path, definition: dict[str, Any]) -> tuple[dict[str, ArrayPlan], list[str]]:
    """Arrays and scalars. Raises UsageError for what a definition does not say how to draw."""
    arrays, scalars, unknown = {}, [], []
    for key, body in definition["inputs"].items():
        if body.get("shape") is None:
            scalars.append(key)
        elif body["dtype"] in FLOATS:
            arrays[key] = ArrayPlan(shape=body["shape"], dtype=body["dtype"])
        elif body["dtype"] == "bool":
            arrays[key] = ArrayPlan(shape=body["shape"], dtype="bool", fill="booleans", high=0.5)
        else:
            unknown.append(f"{key} ({body['dtype']})")
    if unknown:
        raise UsageError(
            f"{path} does not say which values {', '.join(unknown)} may have; write the reference into a FILE.py "
            "with a function example_inputs() that draws them, and import FILE.py:run"
        )
    return arrays, scalars


def _workloads(path: Path, definition: dict[str, Any], scalars: list[str]) -> tuple[list[Sizes], list[str]]:
    """Sizes of the variable axes and values of the scalars, of some workloads, and what is to be told of them."""
    file = _workload_file(path, definition)
    variable = [axis for axis, body in definition["axes"].items() if body.get("type") == "var"]
    if file is None:
        told = [
            f"workloads: none were found; {', '.join(variable) or 'no axis'} of {USUAL_SIZES} are made up"
        ]
        told += [
            f"{name}: no workload gives its value, so it is 1.0; put yours into problems" for name in scalars
        ]
        return [
            {**dict.fromkeys(variable, size), **dict.fromkeys(scalars, 1.0)} for size in USUAL_SIZES
        ], told
    found, stored = [], set()
    for line in read_text(file).splitlines():
        workload = json.loads(line).get("workload") if line.strip() else None
        if workload is None:
            continue
        given = workload.get("inputs", {})
        stored |= {key for key, body in given.items() if body.get("type") == "safetensors"}
        sizes = {axis: workload["axes"][axis] for axis in variable if axis in workload["axes"]}
        sizes |= {name: given[name].get("value", 1.0) for name in scalars if name in given}
        if len(sizes) == len(variable) + len(scalars) and sizes not in found:
            found.append(sizes)
    if not found:
        raise UsageError(f"{file} has no workload that sets {', '.join(variable)}; mend it or move it away")
    kept = _spread(sorted(found, key=lambda sizes: [sizes[axis] for axis in variable]))
    told = (
        [f"workloads: {len(kept)} of {len(found)} that differ in size are kept"]
        if len(kept) < len(found)
        else []
    )
    if stored:
        told.append(
            f"{', '.join(sorted(stored))}: stored tensors are not carried over; they are drawn at random"
        )
    return kept, told


def _workload_file(path: Path, definition: dict[str, Any]) -> Path | None:
    name = f"{definition.get('name', path.stem)}.jsonl"
    folders = [path.parent, *(folder / "workloads" for folder in path.resolve().parents[:4])]
    places = [
        place
        for folder in folders
        for place in (folder / name, folder / str(definition.get("op_type")) / name)
    ]
    return next((place for place in places if place.is_file()), None)


def _spread(found: list[Sizes]) -> list[Sizes]:
    """At most MAX_WORKLOADS of them, the ends included."""
    if len(found) <= MAX_WORKLOADS:
        return found
    step = (len(found) - 1) / (MAX_WORKLOADS - 1)
    return [found[round(number * step)] for number in range(MAX_WORKLOADS)]
