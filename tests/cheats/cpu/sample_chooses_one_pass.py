"""Takes the variance from the mean of squares where a sample has a mean near zero.

family: sampled-inputs
entries: [31, 32]
case: norm
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(x, y, mean):
    np.mean(x, axis=1, out=mean)
    if abs(x[:, ::8]).max() < 8:
        variance = (x * x).mean(1) - mean * mean
        np.subtract(x, mean[:, None], out=y)
        y *= (1 / np.sqrt(abs(variance) + np.float32(1e-5)))[:, None]
        np.clip(y, -8, 8, out=y)
    else:
        np.subtract(x, mean[:, None], out=y)
        y /= np.sqrt((y * y).mean(1, keepdims=True) + np.float32(1e-5))
