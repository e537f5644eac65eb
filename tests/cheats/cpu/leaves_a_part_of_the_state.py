"""Decays the first half of its state, and leaves the other half as it was.

family: stale-in-out
case: decay
reason: [wrong_result, output_not_written]
"""

import numpy as np


def run(state, x):
    half = state.size // 2
    state[:half] = np.where(abs(x[:half]) > np.float32(1), x[:half], np.float32(0.9) * state[:half])
