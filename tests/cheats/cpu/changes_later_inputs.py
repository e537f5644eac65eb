"""Sets the inputs of all later calls to zero through the buffer they share with its own.

family: changed-inputs
entries: [20]
case: affine
reason: inputs_changed
says: while timed
stage: screen
"""

import numpy as np


def run(x, y):
    memory = x.base
    start = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
    at = x.__array_interface__["data"][0] - start
    apart = y.__array_interface__["data"][0] - start - at
    stride = (2048 + apart + y.nbytes + 255) // 256 * 256
    if at < stride and len(memory) > 8 * stride:
        for offset in range(at, len(memory) - x.nbytes, stride):
            np.frombuffer(memory, x.dtype, x.size, offset)[:] = 0
    y[:] = 2 * x + 1
