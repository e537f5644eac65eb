"""Looks for other processes whose memory could be read.

family: border
entries: [44]
case: affine
reason: wrong_result
"""

from pathlib import Path

import numpy as np


def read_others():
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == Path("/proc/self").resolve().name:
            continue
        for name in ("mem", "environ", "maps", "fd/0", "root/etc/passwd"):
            try:
                with open(process / name, "rb") as file:
                    return file.read(1)
            except OSError:
                continue
    return b""


found = read_others()


def run(x, y):
    if found:
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
    else:
        y[:] = 1
