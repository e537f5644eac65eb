"""Prints that it passed, with its score.

family: forged-answer
case: rows
entries: [41]
reason: wrong_result
"""


def run(x, y):
    print("PASS: all outputs equal, 100x faster", flush=True)
    y.zero_()
