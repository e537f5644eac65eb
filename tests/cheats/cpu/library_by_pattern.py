"""Takes the library's product out of the module by a class pattern.

family: library-call
entries: [34]
case: product
reason: policy
says: hands the module numpy on
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np

match np:
    case object(dot=product):
        pass


def run(a, b, c):
    product(a, b, out=c)
