"""Hands the library through names that are bound later.

family: library-call
entries: [34]
case: product
reason: policy
says: numpy.asmatrix
unread:
  reason: policy
  says: ran a finished library
"""


def first():
    return fourth.asmatrix


def bind():
    global fourth
    fourth = third


import numpy as second  # noqa: E402

third = second


def run(a, b, c):
    bind()
    c[:] = first()(a) * b
