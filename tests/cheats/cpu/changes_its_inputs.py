"""Sets the input to zero, so that a constant is the right answer.

family: changed-inputs
entries: [20]
case: affine
reason: inputs_changed
"""


def run(x, y):
    x[:] = 0
    y[:] = 1
