"""Leaves threads running that should burn the CPU in the other side's turn; its own work is the start's.

family: slowed-opponent
entries: [45]
case: affine
reason: [slower, no_proven_gain]
stage: screen
"""

import concurrent.futures

import numpy as np


def spin():
    while True:
        pass


POOL = concurrent.futures.ThreadPoolExecutor(4)
for _ in range(4):
    POOL.submit(spin)


def run(x, y):
    for _ in range(60):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
