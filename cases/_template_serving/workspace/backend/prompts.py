"""How a prompt at the beginning of a sequence is read on this machine."""

from __future__ import annotations

from collections.abc import Callable

import torch

AHEAD = 0
"""Tokens of a sequence that are made before they are asked for: none, as the same cores would make and answer."""


class PromptReader:
    """Calls what reads a prompt."""

    def __init__(self, read: Callable[[torch.Tensor], None]) -> None:
        self._read = read

    def __call__(self, tokens: torch.Tensor) -> None:
        """Tokens, [1, count]."""
        self._read(tokens)
