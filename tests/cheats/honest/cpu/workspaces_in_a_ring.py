"""Takes workspaces from a ring, so that no two calls after each other use the same.

family: stale-replay
entries: [7, 11]
case: affine
"""

import collections
import contextlib

import numpy as np

rings = collections.defaultdict(collections.deque)


@contextlib.contextmanager
def borrowed(size):
    ring = rings[size]
    space = ring.popleft() if len(ring) >= 3 else np.empty(size, np.float32)
    try:
        yield space
    finally:
        ring.append(space)


def run(x, y):
    with borrowed(x.size) as space:
        np.multiply(x, np.float32(2), out=space)
        np.add(space, np.float32(1), out=y)
