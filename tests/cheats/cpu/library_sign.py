"""Lets the @ sign call the library's product.

family: library-call
entries: [34]
case: product
reason: policy
says: finished operator (@)
unread:
  reason: policy
  says: ran a finished library
"""


def run(a, b, c):
    c[:] = a @ b
