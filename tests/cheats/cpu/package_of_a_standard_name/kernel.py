"""Brings a package with the name of a standard module, which the runner would import.

family: shadowed-module
entries: [38]
case: affine
reason: policy
says: hides the module
unread:
  reason: wrong_result
"""


def run(x, y):
    y[:] = 0
