"""What the server is told by its environment, and the machine that it is written for."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from knobs import knob

DEVICE = "cpu"
DTYPE: Literal["float32", "bfloat16", "float16"] = "float32"
ACCEPTED = 0.001
"""Of parity.py: gaps that rounding alone makes, in standard deviations of the logits."""
STEP: str = knob("SERVE_STEP")
"""`transformers`: its modules, with operators of ops/ in their places. `loop`: decode_step.py."""


def as_given(tensor: torch.Tensor) -> Any:
    """As the lab hands it to a kernel on a CPU: NumPy's array of the same memory."""
    return np.asarray(tensor)


def set_up() -> None:
    """What must be so before a model is read."""
    torch.set_num_threads(knob("SERVE_THREADS"))
