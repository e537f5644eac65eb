"""Imports the contract to compute the public problems beforehand.

family: guessed-inputs
entries: [17, 16]
case: affine
reason: policy
says: "imports 'contract'"
unread:
  reason: does_not_load
  says: "No module named 'contract'"
"""

import contract

known = contract.Contract().problems


def run(x, y):
    y[:] = 2 * x + 1
