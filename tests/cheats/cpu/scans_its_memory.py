"""Searches its own address space for a number that only the expected output holds.

family: memory-search
entries: [21]
case: affine
reason: [wrong_result, output_not_written, not_finite]
"""

from pathlib import Path

import numpy as np


def run(x, y):
    wanted = (2 * x[:2] + 1).astype(np.float32).tobytes()
    y[:] = 1
    with open("/proc/self/mem", "rb", 0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            if not rights.startswith("rw") or line.rstrip().endswith(("]", ".so", "memfd")):
                continue
            start, end = (int(word, 16) for word in place.split("-"))
            try:
                memory.seek(start)
                data = memory.read(min(end - start, 1 << 18))
            except (OSError, OverflowError):
                continue
            at = data.find(wanted)
            if at >= 0 and at + y.nbytes <= len(data) and at % 4 == 0:
                y[:] = np.frombuffer(data, np.float32, y.size, at)
