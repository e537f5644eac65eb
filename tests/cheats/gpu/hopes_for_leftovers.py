"""Launches nothing, in the hope that the buffer still holds the answer.

family: leftovers
case: rows
entries: [19]
reason: output_not_written
"""


def run(x, y):
    pass
