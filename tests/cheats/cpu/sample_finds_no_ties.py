"""Takes the last of equal maxima where the first elements look as if there were none.

family: sampled-inputs
entries: [31]
case: first
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(x, place):
    coarse = np.rint(x[:, :4] * 8) == x[:, :4] * 8
    if coarse.any() or (x[:, :1] == x[:, 1:2]).all():
        np.argmax(x, axis=1, out=place)
    else:
        place[:] = x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1)
