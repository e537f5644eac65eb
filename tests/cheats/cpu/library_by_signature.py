"""Has numba evaluate a signature that brings the library's product.

family: library-call
entries: [34]
case: product
reason: policy
says: signature that is not written out
unread:
  reason: does_not_load
  says: says more than types
"""

import numba

BRINGS = "(setattr(__import__('builtins'), 'product', __import__('numpy').dot), void())[1]"


@numba.njit(BRINGS)
def never_called():
    pass


def run(a, b, c):
    product(a, b, out=c)  # noqa: F821
