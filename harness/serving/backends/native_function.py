"""Functions of a workspace's C and C++ files, for a backend on a CPU.

In a server they are compiled in its sandbox, before anything of the workspace is imported; elsewhere at the first use.
"""

from __future__ import annotations

import ctypes
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.harness.candidate.native_kernel import COMPILERS, build_library
from hillclimb.harness.channel.row_names import library_name

if TYPE_CHECKING:
    import torch

UNCOMPILED = frozenset({"tests", "docs"})
"""Folders of a workspace that no backend imports."""

_libraries: dict[Path, Path] = {}
"""What is compiled already, by its source."""


class NativeFunction:
    """Called with tensors and then numbers by name; returns nothing."""

    def __init__(self, library: Path, name: str) -> None:
        """Raises AttributeError where the library has no function of that name."""
        self._function = getattr(ctypes.CDLL(str(library)), name)
        self._function.restype = None
        self._name = name

    def __call__(self, *tensors: torch.Tensor, **numbers: float) -> None:
        """The function gets a pointer to each tensor, `const int64_t *sizes` of all, and the numbers.

        Whole numbers and booleans go as int64_t, others as double, in the order given. Raises TypeError for tensors
        that do not lie on the CPU one element after the other.
        """
        for at, tensor in enumerate(tensors):
            if tensor.device.type != "cpu" or not tensor.is_contiguous():
                given = f"on {tensor.device}, with strides {tensor.stride()}"
                raise TypeError(
                    f"{self._name}: tensor {at} is {given}; hand over a contiguous one of the CPU"
                )
        sizes = [size for tensor in tensors for size in tensor.shape]
        self._function(
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
            (ctypes.c_int64 * len(sizes))(*sizes),
            *(_number(value) for value in numbers.values()),
        )


@cache
def native_function(file: Path, name: str) -> NativeFunction:
    """A function of a source file of the workspace.

    Raises CompilationError and ForeignSymbolError where it must be compiled and cannot, AttributeError where it has no
    such function.
    """
    source = file.resolve()
    if source not in _libraries:
        place = tempfile.mkdtemp(prefix="hillclimb-native-")
        _libraries[source] = build_library(source.parent, source.name, (), Path(place, f"{source.stem}.so"))
    return NativeFunction(_libraries[source], name)


def compile_all(workspace: Path, place: Path) -> None:
    """Compile every source of a workspace into `place`. Raises CompilationError, ForeignSymbolError."""
    for source in sorted(workspace.rglob("*")):
        inside = source.relative_to(workspace)
        if source.suffix in COMPILERS and source.is_file() and inside.parts[0] not in UNCOMPILED:
            library = place / library_name(inside)
            _libraries[source.resolve()] = build_library(workspace, str(inside), (), library)


def _number(value: float) -> ctypes.c_int64 | ctypes.c_double:
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_double(value)
