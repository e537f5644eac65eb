"""Lies in a package with a plan for each shape, a table of settings and knobs in a file.

family: shadowed-module
entries: [34]
case: rows
interpreted: {}
"""

from softmax import launch


def run(x, y):
    launch(x, y)
