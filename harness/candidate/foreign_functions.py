"""Functions of compiled libraries, called through ctypes, as functions that Python's profile events tell of.

Such a call makes no event by itself: it goes through a function of Python here that has its library's and its own name.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from types import FunctionType
from typing import Any


def tell_of_calls() -> None:
    """From here on, functions taken from libraries by name are called so. Costs a call of Python each time."""
    take, taking = ctypes.CDLL.__getitem__, threading.Lock()

    def take_named(library: ctypes.CDLL, name: Any) -> Any:
        if not isinstance(name, str):  # an ordinal
            return take(library, name)
        with taking:
            base = library._FuncPtr
            parts = {
                "_flags_": base._flags_,
                "_restype_": base._restype_,
                "__call__": _calling(library, base, name),
            }
            library._FuncPtr = type(base.__name__, (base,), parts)
            try:
                return take(library, name)
            finally:
                library._FuncPtr = base

    ctypes.CDLL.__getitem__ = take_named  # type: ignore[method-assign]


def _calling(library: ctypes.CDLL, base: Any, name: str) -> FunctionType:
    """What calls a function of a library, under its name."""
    place = f"{Path(library._name or 'python').name.partition('.so')[0]}.so"

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return base.__call__(self, *arguments, **named)

    code = call.__code__.replace(co_name=name, co_filename=place)
    return FunctionType(code, call.__globals__, name, closure=call.__closure__)
