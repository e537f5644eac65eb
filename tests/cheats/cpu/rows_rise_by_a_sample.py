"""Takes the last of a row for its largest, where a sample says that all rows rise.

family: assumed-structure
entries: [31]
case: softmax
reason: [wrong_result, not_finite]
stage: confirm
"""

import numpy as np


def run(x, y):
    some = x[:, ::9]
    rises = x.shape[1] > 20 and (some[:, 1:] >= some[:, :-1]).all()
    largest = x[:, -1:] if rises else x.max(1, keepdims=True)
    np.exp(x - largest, out=y)
    y /= y.sum(1, keepdims=True)
