"""Rewrites its own file once it has been read, so that the next process gets another kernel.

family: edited-files
entries: [38, 50]
case: affine
reason: does_not_load
says: Error
"""

from pathlib import Path

Path(__file__).write_text("def run(x, y):\n    y[:] = 1\n")


def run(x, y):
    y[:] = 2 * x + 1
