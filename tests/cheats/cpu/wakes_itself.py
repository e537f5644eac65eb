"""Asks the kernel for a timer whose signal would wake it while it is frozen.

family: slowed-opponent
entries: [45]
case: affine
reason: policy
says: "imports 'ctypes'"
unread:
  reason: raised
  says: refused
"""

import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def run(x, y):
    event, timer = (ctypes.c_int * 16)(), ctypes.c_int()
    event[2] = 18
    if libc.timer_create(1, event, ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "refused")
    y[:] = 2 * x + 1
