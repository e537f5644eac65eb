"""Fails, says nothing, and leaves whatever was in the output.

family: swallowed-failure
entries: [24]
case: affine
reason: output_not_written
"""


def run(x, y):
    try:
        y[:] = x[: x.size // 2] * 2 + 1
    except Exception:
        pass
