"""Lies in packages whose modules import each other.

family: shadowed-module
entries: [34]
case: product
"""

from loops.outer import add_outer_products
from plan import Plan


def run(a, b, c):
    plan = Plan.for_shape(*c.shape)
    for band in plan:
        add_outer_products(a, b, c, band)
