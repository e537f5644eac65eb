"""Writes zeros.

family: constant-answer
case: rows
entries: [25]
reason: wrong_result
"""


def run(x, y):
    y.zero_()
