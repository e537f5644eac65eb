"""Functions of a workspace's C and C++ files, for a backend on a CPU.

In a server they are compiled in its sandbox, before anything of the workspace is imported; elsewhere at the first use.
"""

from __future__ import annotations

import ctypes
import operator
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.candidate.native_kernel import (
    COMPILERS,
    CompilationError,
    ForeignSymbolError,
    build_library,
)
from hillclimb.harness.channel.row_names import library_name

UNCOMPILED = frozenset({"tests", "docs"})
"""Folders of a workspace that no backend imports."""

_built: dict[Path, Path | CompilationError | ForeignSymbolError] = {}
"""Libraries by their sources, or why there is none."""


class NativeFunction:
    """Called with tensors and then numbers by name; returns nothing."""

    def __init__(self, library: Path, name: str) -> None:
        """Raises AttributeError where the library has no function of that name of its own."""
        self._function = getattr(ctypes.CDLL(str(library)), name)
        if _home(self._function) != library.resolve():
            raise AttributeError(f"{library.name} takes {name} from elsewhere, and has none of its own")
        self._function.restype = None
        self._name = name

    def __call__(self, *tensors: torch.Tensor, **numbers: float) -> None:
        """The function gets a pointer to each tensor, `const int64_t *sizes` of all, and the numbers.

        Whole numbers and booleans go as int64_t, others as double, in the order given. Raises TypeError for tensors
        that do not lie on the CPU one element after the other.
        """
        for at, tensor in enumerate(tensors):
            if (problem := _problem_with(tensor)) is not None:
                told = f"{self._name}: tensor {at} {problem}"
                raise TypeError(f"{told}; hand over a contiguous one of the CPU")
        sizes = [size for tensor in tensors for size in tensor.shape]
        self._function(
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
            (ctypes.c_int64 * len(sizes))(*sizes),
            *(_number(name, value) for name, value in numbers.items()),
        )


@cache
def native_function(file: Path, name: str) -> NativeFunction:
    """A function of a source file of the workspace.

    Raises CompilationError and ForeignSymbolError where it must be compiled and cannot, AttributeError where it has no
    such function.
    """
    source = file.resolve()
    if source not in _built:
        place = tempfile.mkdtemp(prefix="hillclimb-native-")
        _built[source] = build_library(source.parent, source.name, (), Path(place, f"{source.stem}.so"))
    built = _built[source]
    if not isinstance(built, Path):
        raise built
    return NativeFunction(built, name)


def compile_all(workspace: Path, place: Path) -> None:
    """Compile every source of a workspace into `place`. Why one cannot be is told to whoever asks for it."""
    for source in sorted(workspace.rglob("*")):
        inside = source.relative_to(workspace)
        is_passed_over = inside.parts[0] in UNCOMPILED or any(part.startswith(".") for part in inside.parts)
        if source.suffix not in COMPILERS or not source.is_file() or is_passed_over:
            continue
        library = place / library_name(inside)
        if library.exists():
            problem = f"{inside}: another file's library is called {library.name} too; rename one of them"
            _built[source.resolve()] = CompilationError(problem)
            continue
        try:
            _built[source.resolve()] = build_library(workspace, str(inside), (), library)
        except (CompilationError, ForeignSymbolError) as error:
            _built[source.resolve()] = error


class _SymbolPlace(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _home(function: Any) -> Path | None:
    """The file of the library that a function lies in."""
    place = _SymbolPlace()
    found = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place))
    return Path(place.file.decode()).resolve() if found and place.file else None


def _problem_with(tensor: object) -> str | None:
    if not isinstance(tensor, torch.Tensor):
        return f"is a {type(tensor).__name__}"
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        return f"is on {tensor.device}, with strides {tensor.stride()}"
    return "is conjugated or negated lazily" if tensor.is_conj() or tensor.is_neg() else None


def _number(name: str, value: object) -> ctypes.c_int64 | ctypes.c_double:
    """Raises TypeError for what neither type of C holds."""
    if isinstance(value, float):
        return ctypes.c_double(value)
    try:
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        whole = None
    if whole is None or not -(2**63) <= whole < 2**63:
        raise TypeError(f"{name} is {value!r}; hand over a float, or a whole number of 64 bits")
    return ctypes.c_int64(whole)
