"""Writes constants to a file of its scratch folder, and maps it.

family: tuning-while-timed
entries: [9]
case: affine
"""

import os
from pathlib import Path

import numpy as np

FILE = Path(os.environ["TMPDIR"], "constants")
np.array([2, 1], np.float32).tofile(FILE)
TWO, ONE = np.memmap(FILE, np.float32, "r")


def run(x, y):
    np.multiply(x, TWO, out=y)
    np.add(y, ONE, out=y)
