from __future__ import annotations

from .device import whole
from .plans import plan


def launch(x, y):
    rows, columns = x.shape
    made = plan(columns)
    whole[(rows,)](x, y, columns, made.width, num_warps=made.warps)
