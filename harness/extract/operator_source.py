"""A module's computation as a Python file of its own, as torch.export writes it down."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.export.graph_signature import InputKind

from hillclimb.harness.errors import UsageError
from hillclimb.harness.extract.module_groups import ModuleGroup, describe
from hillclimb.harness.extract.profiled import OperatorFile

SMALL_AXIS = 4
"""Sizes up to this one are written out; larger ones have names, and can be made smaller."""

EXPORT_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
"""What torch.export raises: its own errors are RuntimeErrors, the others are of the module's code under it."""

HEAD = "import torch\nfrom torch import nn\n\n"


class _Held(NamedTuple):
    """A tensor that the module has."""

    name: str
    target: str
    value: torch.Tensor
    is_buffer: bool


def operator_source(group: ModuleGroup, title: str) -> OperatorFile:
    """A class of the module's name with weights drawn like its own, and example_inputs() drawn like those seen.

    Raises UsageError for what is no function of float tensors, or cannot be exported.
    """
    if group.unfit:
        raise UsageError(f"{group.name} cannot be a case: it {group.unfit}; choose one that it is made of")
    module = group.modules[0]
    try:
        with torch.no_grad():
            program = torch.export.export(module, tuple(group.arguments), dict(group.keywords))
    except EXPORT_ERRORS as error:
        said = str(error).strip().splitlines()
        raise UsageError(
            f"{group.name} cannot be exported: {said[0] if said else type(error).__name__}"
        ) from error
    held, inputs = _tensors(program)
    drawn = dict(zip(inputs, (v for v in group.arguments if isinstance(v, torch.Tensor)), strict=True))
    sizes = _sizes([*(one.value for one in held.values()), *drawn.values()])
    function = _function(program.graph_module.code, held, inputs)
    return OperatorFile(
        text=HEAD + _file_text(group.kind, title, held, drawn, sizes, function),
        weights={one.name: one.target for one in held.values()},
        sizes={name.lower(): size for size, name in sizes.items()},
        inputs=group.inputs,
        output=describe(group.result),
    )


def _tensors(program: torch.export.ExportedProgram) -> tuple[dict[str, _Held], list[str]]:
    """What the module has, and what it is called with, by the names of the exported function's parameters."""
    held: dict[str, _Held] = {}
    inputs = []
    for spec in program.graph_signature.input_specs:
        name = str(getattr(spec.arg, "name", ""))
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(name)
            continue
        target = str(spec.target)
        value = program.state_dict.get(target, program.constants.get(target))
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"it has {target}, which is no tensor; write a file of its own for it")
        held[name] = _Held(
            target.replace(".", "_"), target, value.detach(), spec.kind is not InputKind.PARAMETER
        )
    return held, [name for name in inputs if name]


def _function(code: str, held: Mapping[str, _Held], inputs: Sequence[str]) -> ast.FunctionDef:
    """`forward` of the inputs alone, which reads what the module has from `self`."""
    found = next(node for node in ast.parse(code.strip()).body if isinstance(node, ast.FunctionDef))
    found.body = [node for node in found.body if not _is_forgotten(node)]
    if any(isinstance(node, ast.Call) and _is_named(node.func, "device") for node in ast.walk(found)):
        raise UsageError(
            "it names a device; write a file of its own for it, with tensors where its inputs are"
        )
    found.args.args = [ast.arg("self"), *(ast.arg(name) for name in inputs)]
    found.body = [_FromSelf(held).visit(node) for node in found.body]
    last = found.body[-1]
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple) and len(last.value.elts) == 1:
        last.value = last.value.elts[0]
    return ast.fix_missing_locations(found)


def _is_forgotten(node: ast.stmt) -> bool:
    """Whether it only lets a tensor go, or asks whether an input is as it was when the module was exported."""
    if not isinstance(node, ast.Assign | ast.Expr):
        return False
    is_none = isinstance(node.value, ast.Constant) and node.value.value is None
    return is_none or any(
        name in ast.unparse(node.value) for name in ("_assert_tensor_metadata", "_guards_fn")
    )


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class _FromSelf(ast.NodeTransformer):
    def __init__(self, held: Mapping[str, _Held]) -> None:
        self._held = held

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._held:
            return node
        return ast.Attribute(ast.Name("self", ast.Load()), self._held[node.id].name, ast.Load())


def _sizes(tensors: Sequence[torch.Tensor]) -> dict[int, str]:
    """Names of the sizes that may be made smaller."""
    found = dict.fromkeys(size for tensor in tensors for size in tensor.shape if size > SMALL_AXIS)
    return {size: f"N{at}" for at, size in enumerate(found)}


def _file_text(
    kind: str,
    title: str,
    held: Mapping[str, _Held],
    drawn: Mapping[str, torch.Tensor],
    sizes: Mapping[int, str],
    function: ast.FunctionDef,
) -> str:
    constants = [f"{name} = {size}" for size, name in sizes.items()]
    arguments = [_draw(tensor, sizes) for tensor in drawn.values()]
    lower = {size: name.lower() for size, name in sizes.items()}
    made = []
    for one in held.values():
        text = _draw(one.value, lower)
        made.append(
            f"self.register_buffer({one.name!r}, {text})"
            if one.is_buffer
            else f"self.{one.name} = nn.Parameter({text})"
        )
    body = "\n".join(f"        {line}" for line in ast.unparse(function).splitlines()).strip()
    return "\n".join(
        [
            *constants,
            "\n\ndef example_sizes():",
            f"    return [{', '.join(sizes.values())}]",
            "\n\ndef example_inputs():",
            f"    return [{', '.join(arguments)}]",
            f"\n\nclass {kind}(nn.Module):",
            f'    """{title}."""\n',
            f"    def __init__(self{''.join(f', {name}' for name in lower.values())}):",
            "        super().__init__()",
            *(f"        {line}" for line in made),
            "",
            "    " + body.replace("\n    ", "\n"),
            "",
        ]
    )


def _draw(tensor: torch.Tensor, sizes: Mapping[int, str]) -> str:
    """Text that draws a tensor of this one's sizes, dtype, mean and deviation."""
    shape = "".join(f"{sizes.get(size, size)}, " for size in tensor.shape)
    wide, dtype = tensor.double(), f"{tensor.dtype}"
    mean, deviation = float(f"{wide.mean():.4g}"), float(f"{wide.std(correction=0):.4g}")
    if deviation == 0:
        return f"torch.full(({shape}), {mean}, dtype={dtype})"
    moved = f" + {mean}" if abs(mean) > deviation / 10 else ""
    drawn = f"torch.randn({shape.rstrip(', ')}) * {deviation}{moved}"
    return drawn if tensor.dtype is torch.float32 else f"({drawn}).to({dtype})"
