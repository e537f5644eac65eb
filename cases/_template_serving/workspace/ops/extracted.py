"""Kernels of extracted operators, which take the places of the model's modules. `hillclimb put-back` writes it."""

from __future__ import annotations

from collections.abc import Callable

import torch

INSTALLERS: list[Callable[[torch.nn.Module], None]] = []
"""Those that the knobs choose."""
