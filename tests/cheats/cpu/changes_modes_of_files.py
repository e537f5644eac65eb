"""Makes its own files writable for the processes after it, by what file rules do not name.

family: border
entries: [38]
case: affine
reason: does_not_load
says: Error
"""

from pathlib import Path

import numpy as np

Path(__file__).chmod(0o777)
Path(__file__).touch()


def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
