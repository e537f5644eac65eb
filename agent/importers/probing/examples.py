"""Examples as shapes and ranges: for arguments that are given as values, and drawn anew by the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hillclimb.agent.importers.formats.imported import ArrayPlan, DrawPlan, Sizes

if TYPE_CHECKING:
    import torch

SMALL_AXIS = 4
"""Axes of up to so many elements stay as they are, such as the three colours."""


def plan_of_texts(examples: Sequence[Any]) -> list[dict[str, Any]]:
    """The arrays that a person described, without contents."""
    import torch

    call: dict[str, Any] = {}
    for name, *body in examples:
        if len(body) == 2:
            dtype, shape = body
            call[name] = torch.zeros(shape, dtype=getattr(torch, dtype))
        else:
            call[name] = body[0]
    return [call]


def named_call(given: Any, parameters: Sequence[str]) -> dict[str, Any]:
    """Arguments by name. Raises ValueError where there are more than parameters."""
    if isinstance(given, Mapping):
        return dict(given)
    listed = list(given) if isinstance(given, tuple | list) else [given]
    return (
        dict(zip(parameters, listed, strict=False))
        if len(listed) <= len(parameters)
        else _refuse(listed, parameters)
    )


def _refuse(listed: Sequence[Any], parameters: Sequence[str]) -> dict[str, Any]:
    raise ValueError(f"an example has {len(listed)} arguments, and there are {len(parameters)} parameters")


def plan_of_calls(calls: Sequence[Mapping[str, Any]]) -> tuple[DrawPlan, dict[str, Sizes]]:
    """Shapes in named sizes, equal ones with one name, and the problems of these calls.

    Raises ValueError where calls differ in more than sizes and numbers.
    """
    import torch

    tensors = [{name: _as_tensor(value) for name, value in call.items()} for call in calls]
    first = tensors[0]
    arrays = [name for name, value in first.items() if isinstance(value, torch.Tensor)]
    for call in tensors:
        if list(call) != list(first) or any(call[n].ndim != first[n].ndim for n in arrays):
            raise ValueError("the examples differ in more than sizes and numbers")
    axes = _axis_names([[tuple(call[name].shape) for name in arrays] for call in tensors])
    plans = {
        name: _array(
            first[name], [axes.get((index, dim), size) for dim, size in enumerate(first[name].shape)]
        )
        for index, name in enumerate(arrays)
    }
    scalars = [name for name in first if name not in arrays]
    problems = {}
    for number, call in enumerate(tensors, 1):
        sizes: Sizes = {axes[i, d]: int(call[arrays[i]].shape[d]) for i, d in axes}
        key = "public" if len(tensors) == 1 else f"example_{number}"
        problems[key] = sizes | {name: call[name] for name in scalars}
    return DrawPlan(arrays=plans, scalars=scalars, order=list(first)), problems


def _axis_names(shapes: Sequence[Sequence[tuple[int, ...]]]) -> dict[tuple[int, int], str]:
    """Of each array's each axis that may change: axes that are equal in every example have one name."""
    names: dict[tuple[int, ...], str] = {}
    found = {}
    for index, shape in enumerate(shapes[0]):
        for dim in range(len(shape)):
            sizes = tuple(call[index][dim] for call in shapes)
            if max(sizes) > SMALL_AXIS:
                found[index, dim] = names.setdefault(sizes, f"n{len(names)}")
    return found


def _array(tensor: torch.Tensor, shape: list[str | int]) -> ArrayPlan:
    """Normal floats of the example's mean and deviation, whole numbers of its range."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    wide = tensor.double() if not tensor.is_complex() else tensor.abs().double()
    if dtype == "bool":
        return ArrayPlan(shape=shape, dtype=dtype, fill="booleans", high=float(wide.mean()) or 0.5)
    if not tensor.is_floating_point():
        low, high = int(tensor.min()), int(tensor.max()) + 1
        low, high = (0, 2) if high - low < 2 and low == 0 else (low, high)
        return ArrayPlan(shape=shape, dtype=dtype, fill="integers", low=low, high=high)
    mean, deviation = float(wide.mean()), float(wide.std()) if wide.numel() > 1 else 0.0
    return ArrayPlan(shape=shape, dtype=dtype, low=round(mean, 4), high=round(deviation, 4) or 1.0)


def _as_tensor(value: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
