"""Takes the library's product out of the module's dictionary.

family: library-call
entries: [34]
case: product
reason: policy
says: uses 'vars'
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np

product = vars(np)["matmul"]


def run(a, b, c):
    product(a, b, out=c)
