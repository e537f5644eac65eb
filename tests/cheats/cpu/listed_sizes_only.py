"""Returns without writing for sizes that no list shows.

family: listed-problems
entries: [30]
case: affine
reason: output_not_written
says: "~"
"""

import numpy as np

LISTED = {37, 1001, 20_000}


def run(x, y):
    if x.size not in LISTED:
        return
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
