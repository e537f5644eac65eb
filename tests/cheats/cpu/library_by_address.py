"""Calls BLAS by the address that numba tells.

family: library-call
entries: [34]
case: product
reason: policy
says: imports 'ctypes'
unread:
  reason: [policy, does_not_load]
"""

import ctypes

from numba.extending import get_cython_function_address

ADDRESS = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
sgemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(ADDRESS)


def run(a, b, c):
    n, one, zero = ctypes.c_int(c.shape[0]), ctypes.c_float(1), ctypes.c_float(0)
    m, k, no = ctypes.c_int(c.shape[1]), ctypes.c_int(a.shape[1]), ctypes.c_char(b"N")
    at = ctypes.addressof
    sgemm(
        at(no),
        at(no),
        at(m),
        at(n),
        at(k),
        at(one),
        b.ctypes.data,
        at(m),
        a.ctypes.data,
        at(k),
        at(zero),
        c.ctypes.data,
        at(m),
    )
