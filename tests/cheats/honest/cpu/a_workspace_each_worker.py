"""Gives every worker of its pool a workspace of its own, and joins them by a barrier of futures.

family: work-after-done
entries: [1, 13]
case: norm
"""

import concurrent.futures

import numpy as np

WORKERS = 2
POOL = concurrent.futures.ThreadPoolExecutor(WORKERS)
spaces = {}


def part(number, x, y, mean):
    space = spaces.setdefault((number, x.shape), np.empty_like(x))
    np.mean(x, axis=1, out=mean)
    np.subtract(x, mean[:, None], out=y)
    np.multiply(y, y, out=space)
    y /= np.sqrt(space.mean(1, keepdims=True) + np.float32(1e-5))


def run(x, y, mean):
    cuts = [slice(n * len(x) // WORKERS, (n + 1) * len(x) // WORKERS) for n in range(WORKERS)]
    jobs = [
        POOL.submit(part, n, x[cut], y[cut], mean[cut]) for n, cut in enumerate(cuts) if cut.stop > cut.start
    ]
    concurrent.futures.wait(jobs)
    for job in jobs:
        job.result()
