"""Mends Triton's interpreter: bfloat16, which it stores as bits and computes with as such, bounds of loops, and haste.

Measured with Triton 3.9: sums, products, comparisons, reductions, dot products and conversions to integers of bfloat16
tensors come out as nonsense, and conversions to bfloat16 are cut off instead of rounded. A GPU computes them in float32
and rounds to nearest, ties to even; so does the interpreter once it is mended. Triton 3.6 takes a tensor for a loop's
bound by int(), which NumPy from 2.4 on refuses an array of one dimension.

With every function that a kernel calls, the whole language is patched anew, and sums of integers are checked for
overflow, which a GPU does not do: together half of the time that a kernel of many small functions takes (Triton 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

COMPUTING = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_rsqrt", "create_erf", "create_dot")
"""The interpreter's methods through which every calculation goes."""

REDUCING = ("ReduceOps", "ScanOps")


def apply_fixes() -> None:
    """Have the interpreter of this process compute with bfloat16 numbers, and sooner; what needs no mending is left."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter._patch_lang_tensor, "__wrapped__"):
        interpreter._patch_lang_tensor = _with_index_operator(interpreter._patch_lang_tensor)
        interpreter._patch_lang = _patch_once(interpreter._patch_lang)
        made = interpreter.interpreter_builder
        made.options = replace(made.options, sanitize_overflow=False)
    builder = interpreter.InterpreterBuilder
    if interpreter._get_np_dtype(tl.bfloat16) != np.uint16 or hasattr(builder.cast_impl, "__wrapped__"):
        return
    builder.cast_impl = _cast_through_float32(builder.cast_impl)
    for name in COMPUTING:
        setattr(builder, name, _compute_in_float32(getattr(builder, name)))
    for name in REDUCING:
        operation = getattr(interpreter, name)
        operation.apply_impl = _reduce_in_float32(operation.apply_impl)


def _with_index_operator(patch: Callable[..., None]) -> Callable[..., None]:
    """What gives tensors their Python operators, and then a bound of a loop whatever their shape."""

    @wraps(patch)
    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    return patched


def _patch_once(patch: Callable[..., Any]) -> Callable[..., Any]:
    """What gives the language its interpreted functions: for a kernel, and not again for each function it calls."""
    import triton.language as tl
    from triton.runtime import interpreter

    done: set[Any] = set()

    @wraps(patch)
    def patched(function: Any) -> Any:
        modules = {value for value in function.__globals__.values() if value is tl or value is tl.core}
        if done and modules <= done:
            return interpreter._LangPatchScope()
        is_kernel, scope = not done, patch(function)
        done.update(modules)
        if is_kernel:
            restore = scope.restore

            def restore_all() -> None:
                done.clear()
                restore()

            scope.restore = restore_all
        return scope

    return patched


def _cast_through_float32(cast: Callable[..., Any]) -> Callable[..., Any]:
    """To and from bfloat16 by way of float32."""
    import triton.language as tl

    @wraps(cast)
    def convert(builder: Any, source: Any, target: Any) -> Any:
        if _is_bfloat16(source) and target.scalar != tl.bfloat16:
            return cast(builder, _widen(source), target)
        if not _is_bfloat16(source) and target.scalar == tl.bfloat16:
            wide = source if source.dtype.scalar == tl.float32 else cast(builder, source, tl.float32)
            return _narrow(wide)
        return cast(builder, source, target)

    return convert


def _compute_in_float32(compute: Callable[..., Any]) -> Callable[..., Any]:
    """In float32 where an operand is bfloat16; a number that comes out is one again, a truth stays a truth."""
    import triton.language as tl

    @wraps(compute)
    def widened(builder: Any, *operands: Any) -> Any:
        if not any(map(_is_bfloat16, operands)):
            return compute(builder, *operands)
        found = compute(builder, *map(_widen, operands))
        keeps = compute.__name__ == "create_dot" or found.data.dtype.kind != "f"
        return found if keeps or found.dtype.scalar != tl.float32 else _narrow(found)

    return widened


def _reduce_in_float32(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """In float32, rounded once at the end."""

    @wraps(reduce)
    def widened(operation: Any, operands: Sequence[Any]) -> Any:
        was_narrow = [_is_bfloat16(operand.handle) for operand in operands]
        if not any(was_narrow):
            return reduce(operation, operands)
        found = reduce(operation, tuple(map(_retyped, operands, [_widen] * len(operands))))
        if not isinstance(found, list | tuple):
            return _rounded(found) if was_narrow[0] else found
        return [_rounded(one) if narrow else one for one, narrow in zip(found, was_narrow, strict=True)]

    return widened


def _rounded(tensor: Any) -> Any:
    """A float32 tensor of the language as bfloat16; an index stays an index."""
    return _retyped(tensor, _narrow) if tensor.handle.data.dtype.kind == "f" else tensor


def _retyped(tensor: Any, convert: Callable[[Any], Any]) -> Any:
    import triton.language as tl

    handle = convert(tensor.handle)
    shape = [int(length) for length in tensor.shape]
    kind = tl.block_type(handle.dtype.scalar, shape) if shape else handle.dtype.scalar
    return tl.core.tensor(handle, kind)


def _is_bfloat16(operand: Any) -> bool:
    import triton.language as tl

    return bool(getattr(getattr(operand, "dtype", None), "scalar", None) == tl.bfloat16)


def _widen(operand: Any) -> Any:
    """A handle of bfloat16 numbers as one of float32 numbers; anything else as it is."""
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if not _is_bfloat16(operand) or operand.data.dtype.kind == "b":
        return operand
    numbers = torch.from_numpy(operand.data.view("int16").copy()).view(torch.bfloat16).float()
    return TensorHandle(numbers.numpy(), tl.float32)


def _narrow(handle: Any) -> Any:
    """A handle of float32 numbers as one of bfloat16 numbers, rounded to nearest, ties to even."""
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    numbers = torch.from_numpy(np.array(handle.data, dtype=np.float32)).bfloat16()
    return TensorHandle(numbers.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)
