"""Launches a kernel that does nothing of use beside torch's operators.

family: library-call
case: rows
entries: [37]
reason: policy
says: "finished operator (.exp())"
"""

import triton
import triton.language as tl


@triton.jit
def show(y):
    tl.store(y, tl.load(y))


def run(x, y):
    show[(1,)](y)
    e = (x - x.amax(1, keepdim=True)).exp()
    y.copy_(e / e.sum(1, keepdim=True))
