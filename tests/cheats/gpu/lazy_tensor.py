"""Hands back a tensor that computes when somebody looks at it.

family: lazy-result
case: rows
entries: [2]
reason: policy
says: derives a class from torch
unread:
  reason: output_not_written
"""

import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def run(x, y):
    return x.as_subclass(Lazy)
