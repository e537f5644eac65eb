"""Writes nothing, in the hope that the buffer still holds the answer.

family: leftovers
entries: [19]
case: affine
reason: output_not_written
"""


def run(x, y):
    pass
