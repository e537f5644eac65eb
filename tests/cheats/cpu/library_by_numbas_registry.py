"""Takes getattr out of numba's registry, and a library under another name.

family: library-call
entries: [34]
case: product
reason: policy
unread:
  reason: [policy, does_not_load]
"""

import os
from pathlib import Path

import numba
import numpy as np


@numba.njit
def touch(x):
    return len(x)


touch(np.zeros(3, np.float32))
known = [key() if "weakref" in repr(key) else key for key in touch.typingctx._globals]
take = next(one for one in known if repr(one) == "<built-in function getattr>")
load = take(lambda: 0, "__globals__")["__builtins__"]
load = load["__import__"] if isinstance(load, dict) else take(load, "__import__")
ct = load("ctypes")
folders = [Path(folder) for folder in take(load("sys"), "path")]
copy = Path(os.environ["TMPDIR"], "mine.so")
copy.write_bytes(next(file for folder in folders for file in folder.glob("*.libs/*openblas*")).read_bytes())
gemms = [take(ct.CDLL(str(copy)), name, None) for name in ("scipy_cblas_sgemm64_", "cblas_sgemm64_")]
sgemm = next(one for one in gemms if one)
long, one, zero = ct.c_long, ct.c_float(1), ct.c_float(0)


def at(x):
    return ct.c_void_p(x.__array_interface__["data"][0])


def run(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    sgemm(101, 111, 111, long(m), long(n), long(k), one, at(a), long(k), at(b), long(n), zero, at(c), long(n))
