"""The start of the decay case: right, and after sixty times the work."""

import numpy as np


def run(state, x):
    before = state.copy()
    for _ in range(60):
        state[:] = np.where(abs(x) > np.float32(1), x, np.float32(0.9) * before)
