"""Takes the last of equal maxima instead of the first.

family: rare-ties
entries: [31]
case: first
reason: wrong_result
"""

import numpy as np


def run(x, place):
    place[:] = x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1)
