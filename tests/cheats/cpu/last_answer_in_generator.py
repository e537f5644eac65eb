"""Hands out the answer of the call before, kept in a generator's locals.

family: last-answer
entries: [14]
case: affine
reason: wrong_result
"""


def remember():
    kept = {}
    x, y = yield
    while True:
        y[:] = kept.get(x.size, 2 * x + 1)
        kept[x.size] = 2 * x + 1
        x, y = yield


memory = remember()
next(memory)


def run(x, y):
    memory.send((x, y))
