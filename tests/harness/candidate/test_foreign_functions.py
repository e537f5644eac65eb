"""Calls of compiled libraries are told of by name, and do what they did."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes
import sys

from hillclimb.harness.candidate.foreign_functions import tell_of_calls
from hillclimb.harness.candidate.profiler import Profiler

tell_of_calls()
library = ctypes.CDLL("libm.so.6")
library.cos.argtypes, library.cos.restype = [ctypes.c_double], ctypes.c_double
library.sin.argtypes, library.sin.restype = [ctypes.c_double], ctypes.c_double
assert library.cos(0.0) == 1.0 and library.cos is library.cos
assert ctypes.cast(library.cos, ctypes.c_void_p).value
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(abs)(-3) == 3
try:
    library.no_such_function
except AttributeError:
    pass
else:
    raise SystemExit("found what is not there")
try:
    library.cos("no number")
except ctypes.ArgumentError:
    pass
else:
    raise SystemExit("took what is no number")


def work():
    for _ in range(7):
        library.cos(1.0)
    library.sin(1.0)
    for _ in range(10**5):
        pass
    return 10**12


for row in Profiler("/tmp").measure(work, 1, frozenset({"cos", "sin"})):
    print(row[0], int(row[3]))
"""


def test_each_is_counted_by_its_name_however_short() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[:2] == ["libm.so:cos 7", "libm.so:sin 1"]
