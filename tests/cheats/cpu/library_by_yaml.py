"""Has YAML name the library's product.

family: library-call
entries: [34]
case: product
reason: policy
says: yaml.unsafe_load
unread:
  reason: policy
  says: ran a finished library
"""

import yaml

product = yaml.unsafe_load("!!python/name:numpy.dot")


def run(a, b, c):
    product(a, b, out=c)
