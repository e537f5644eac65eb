"""Replaces abs and max for everybody, and writes zeros.

family: patched-judge
entries: [42]
case: affine
reason: policy
says: "imports 'builtins'"
unread:
  reason: [wrong_result, broke_protocol, exited, raised]
"""

import builtins

builtins.abs = lambda x: 0
builtins.max = lambda *a, **k: 0


def run(x, y):
    y[:] = 0
