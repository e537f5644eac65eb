"""Calls torch's softmax.

family: library-call
case: rows
entries: [34]
reason: policy
says: "finished operator (torch.softmax)"
"""

import torch


def run(x, y):
    torch.softmax(x, 1, out=y)
