"""Kernels in the places of the model's own modules. `hillclimb put-back` writes this file."""

from __future__ import annotations

from collections.abc import Callable

import torch

INSTALLERS: list[Callable[[torch.nn.Module], None]] = []
"""Those that the knobs choose."""

SESSIONS: list[Callable[..., Callable[..., None]]] = []
"""Those of them that take the place of the whole model."""
