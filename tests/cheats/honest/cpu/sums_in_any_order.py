"""Adds partial sums in whatever order threads finish: the last bits differ from call to call.

family: fewer-bits
entries: [33]
case: norm
"""

import concurrent.futures

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(3)


def run(x, y, mean):
    width = x.shape[1]
    cuts = [slice(start, min(start + 200, width)) for start in range(0, width, 200)]
    total = np.zeros(x.shape[0], np.float32)
    for done in concurrent.futures.as_completed(POOL.submit(np.sum, x[:, cut], 1) for cut in cuts):
        total += done.result()
    mean[:] = total / np.float32(width)
    np.subtract(x, mean[:, None], out=y)
    y /= np.sqrt((y * y).mean(1, keepdims=True) + np.float32(1e-5))
