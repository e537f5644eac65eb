"""Writes zeros.

case: rows
entries: [25]
reason: wrong_result
"""


def run(x, y):
    y.zero_()
