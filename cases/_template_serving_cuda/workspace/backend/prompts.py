"""How a prompt at the beginning of a sequence is read on this machine."""

from __future__ import annotations

from collections.abc import Callable

import torch

AHEAD = 2
"""Tokens of a sequence that are made before they are asked for. With one, the GPU waits for a CPU that is late once."""

MOST_LENGTHS = 8
"""Of prompts, that are remembered. A graph of a long prompt holds some hundred MiB."""


class PromptReader:
    """Calls what reads a prompt; from the second prompt of a length on by a CUDA graph."""

    def __init__(self, read: Callable[[torch.Tensor], None]) -> None:
        """What `read` reads and writes beside its tokens lies in the same place every time."""
        self._read = read
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor] | None] = {}
        """With the tokens that it reads, by their count; None for one that came once."""

    def __call__(self, tokens: torch.Tensor) -> None:
        """Tokens, [1, count]."""
        count = tokens.shape[1]
        if count not in self._graphs:
            self._remember(count)
            self._read(tokens)
            return
        graph, given = self._graphs[count] or self._captured(tokens)
        self._graphs[count] = graph, given
        given.copy_(tokens)
        graph.replay()

    def _remember(self, count: int) -> None:
        if len(self._graphs) == MOST_LENGTHS:
            del self._graphs[next(iter(self._graphs))]
        self._graphs[count] = None

    def _captured(self, tokens: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        graph, given = torch.cuda.CUDAGraph(), tokens.clone()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._read(given)
        return graph, given
