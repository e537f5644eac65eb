"""What the server is told by its environment, and the machine that it is written for."""

from __future__ import annotations

from typing import Literal

import torch
from knobs import knob

DEVICE = "cuda"
DTYPE: Literal["float32", "bfloat16", "float16"] = "bfloat16"
ACCEPTED = 0.1
"""Of parity.py: gaps that rounding alone makes, in standard deviations of the logits."""
STEP: str = knob("SERVE_STEP")
"""`transformers`: its modules, with operators of ops/ in their places. `loop`: decode_step.py."""


def as_given(tensor: torch.Tensor) -> torch.Tensor:
    """As the lab hands it to a kernel on a GPU: as it is."""
    return tensor


def set_up() -> None:
    """What must be so before a model is read: nothing."""
