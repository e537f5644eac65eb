"""Takes the variance from the mean of squares less the square of the mean.

family: unstable-formula
entries: [32]
case: norm
reason: [wrong_result, not_finite]
says: offset
"""

import numpy as np


def run(x, y, mean):
    np.mean(x, axis=1, out=mean)
    spread = np.maximum((x * x).mean(1) - mean * mean, 0)
    np.subtract(x, mean[:, None], out=y)
    y /= np.sqrt(spread + np.float32(1e-5))[:, None]
