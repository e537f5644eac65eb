"""The workspace of an imported case: the operator's own code, called through torch or NumPy."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hillclimb.agent.importers.formats.imported import DeviceKind, Findings, Plan
from hillclimb.agent.importers.formats.slicing import slice_operator

BATCH_NORMS = "(torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)"
WIDTH = 100


def original_text(plan: Plan) -> str:
    """original.py: what of the source the baseline needs."""
    return slice_operator(plan.source, [plan.operator.name], plan.beside)


def kernel_text(name: str, plan: Plan, found: Findings, device: DeviceKind) -> str:
    """kernel.py."""
    made = {"Module": _module, "Function": _function, "NumpyFunction": _numpy_function}[plan.operator.kind]
    return made(name, plan, found, device)


def _signature(found: Findings) -> str:
    inputs = [n for n in found.input_names if n not in found.unread]
    attributes = ["*", *found.attribute_names] if found.attribute_names else []
    return "\n".join(_wrapped("def run(", ", ".join([*inputs, *found.output_names, *attributes]), "):"))


def _wrapped(before: str, listed: str, after: str) -> list[str]:
    """Lines of a list whose parts are separated by commas."""
    text = listed.strip().removesuffix(",")
    if len(before) + len(text) + len(after) <= WIDTH:
        return [f"{before}{text}{after}"]
    return [
        before,
        *(f"    {line}" for line in textwrap.wrap(f"{text},", WIDTH, break_long_words=False)),
        after,
    ]


def _head(name: str, plan: Plan, how: str, imports: Sequence[str]) -> list[str]:
    renamed = "" if plan.operator.kind == "Module" else " as operator"
    return [
        f'"""The baseline of {name}: {how}',
        "",
        "Called with the inputs, then the outputs to write. Replace it by a kernel of your own.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *imports,
        f"from original import {plan.operator.name}{renamed}",
        "",
    ]


def _module(name: str, plan: Plan, found: Findings, device: DeviceKind) -> str:
    imports = ["from functools import lru_cache", "", "import torch"]
    lines = _head(name, plan, f"the module {plan.operator.name} of its source, run by torch.", imports)
    sizes = found.attribute_names[: found.sizes_text.count(",") + 1] if found.sizes_text else []
    lines += [
        "",
        "@lru_cache(maxsize=16)",
        f"def module({', '.join(sizes)}):",
        '    """Without weights: a call brings them."""',
        '    with torch.device("meta"):',
        f"        made = {plan.operator.name}({found.sizes_text})",
        f"    made.train({found.mode == 'train'})",
    ]
    if found.mode == "train" and "BatchNorm" in plan.source:
        lines += [
            "    for part in made.modules():",
            f"        if isinstance(part, {BATCH_NORMS}):",
            "            part.track_running_stats = False",
            "            part.running_mean = part.running_var = part.num_batches_tracked = None",
        ]
    lines.append("    return made")
    weights = "".join(f"{w.name!r}: {w.argument}, ".replace("'", '"') for w in found.weights)
    arguments = found.arguments_text if found.arguments_text[:1] in "({" else f"({found.arguments_text},)"
    if arguments.startswith("{"):
        arguments = f"(), {arguments}"
    body = [
        f"made = module({', '.join(sizes)})",
        *_wrapped("weights = {", weights, "}"),
        f"found = torch.func.functional_call(made, weights, {arguments})",
    ]
    return _finished([*lines, "", ""], found, body, device)


def _function(name: str, plan: Plan, found: Findings, device: DeviceKind) -> str:
    lines = _head(
        name, plan, f"the function {plan.operator.name} of its source, run by torch.", ["import torch"]
    )
    return _finished([*lines, ""], found, [f"found = {_call(plan, found)}"], device)


def _call(plan: Plan, found: Findings) -> str:
    text = found.arguments_text
    if not plan.operator.is_unpacked:
        return f"operator({text})"
    if text.startswith("{"):
        return f"operator(**{text})"
    return f"operator(*{text})" if text.startswith("(") else f"operator({text})"


def _finished(lines: list[str], found: Findings, body: list[str], device: DeviceKind) -> str:
    """The function `run` around what computes with torch."""
    lines += ["@torch.no_grad()", _signature(found), '    """Write the outputs."""']
    if device == "cpu":
        arrays = [n for n in (*found.input_names, *found.output_names) if n not in found.unread]
        lines += [f"    {n} = torch.from_numpy({n})" for n in arrays]
        lines += [f"    {line}" for line in body]
    else:
        lines += ["    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):"]
        lines += [f"        {line}" for line in body]
    for output, path in zip(found.output_names, found.result_paths, strict=True):
        lines.append(f"    {output}.copy_(found{path}.reshape({output}.shape))")
    return "\n".join(lines) + "\n"


def _numpy_function(name: str, plan: Plan, found: Findings, device: DeviceKind) -> str:
    lines = _head(name, plan, f"the function {plan.operator.name} of its source.", [])
    lines += ["", _signature(found), '    """Write the outputs."""', f"    found = {_call(plan, found)}"]
    for output, path in zip(found.output_names, found.result_paths, strict=True):
        lines.append(f"    {output}[...] = found{path}")
    return "\n".join(lines) + "\n"
