"""Lets the @ sign call the library's product.

entries: [34]
case: product
reason: policy
says: finished operator (@)
"""


def run(a, b, c):
    c[:] = a @ b
