"""Puts a breakpoint behind every product of NumPy's own: integers and strided arrays are multiplied without BLAS.

What is replaced is what NumPy calls, not the names that lead there: the C functions of its builtins, and the loops of
its matrix ufuncs. Sources: CPython's Include/cpython/methodobject.h and descrobject.h, NumPy's ufuncobject.h.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import sysconfig

BUILTINS = ("c_einsum", "dot", "inner", "vdot", "correlate", "correlate2")
"""Functions of numpy._core._multiarray_umath."""

UFUNCS = ("matmul", "vecdot", "matvec", "vecmat")

WORD = ctypes.sizeof(ctypes.c_void_p)
OBJECT = 2 * WORD
"""Bytes of an object's head: its references and its type."""

BUILTIN_METHOD = OBJECT
"""Where a builtin function, and a method descriptor, name their PyMethodDef, whose second word is the C function."""
DESCRIPTOR_METHOD = OBJECT + 3 * WORD

UFUNC_LOOPS = OBJECT + 4 * ctypes.sizeof(ctypes.c_int)
"""Where a ufunc names its loops, behind its numbers of operands and its identity; their number follows two words on."""


def block_products(breakpoint: int) -> None:
    """Have them all go to this address. Raises OSError on a Python whose objects are laid out otherwise."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise OSError(
            f"objects of {sys.version} are laid out otherwise than CPython's with its lock; use that"
        )
    import numpy as np

    core = importlib.import_module("numpy._core._multiarray_umath")

    for name in BUILTINS:
        if hasattr(core, name):
            _put(_word(id(getattr(core, name)) + BUILTIN_METHOD) + WORD, breakpoint)
    _put(_word(id(np.ndarray.dot) + DESCRIPTOR_METHOD) + WORD, breakpoint)
    for name in UFUNCS:
        ufunc = getattr(np, name, None)
        if ufunc is None:
            continue
        at = id(ufunc) + UFUNC_LOOPS
        if ctypes.c_int.from_address(at + 2 * WORD).value != len(ufunc.types):
            raise OSError(f"ufuncs of NumPy {np.__version__} are laid out otherwise than is known here")
        for loop in range(len(ufunc.types)):
            _put(_word(at) + loop * WORD, breakpoint)


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _put(address: int, value: int) -> None:
    ctypes.c_size_t.from_address(address).value = value
