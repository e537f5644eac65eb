"""The entry: the model's own weights, and the way to run them that the knobs choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from backend import environment
from backend.decode_step import Loop
from backend.hooks import install_hooks
from backend.loading import StockBackend
from backend.session import SessionBackend
from ops.extracted import INSTALLERS, SESSIONS
from ops.norm_gemv import IS_STOCK

from hillclimb.harness.serving.backends.backend import ServedModel


class LoopBackend(StockBackend):
    """Reads and makes tokens by `Loop`."""

    def __init__(self, model: ServedModel) -> None:
        super().__init__(model)
        self._loop = Loop(self.module, self.context, self.slots)
        self._lengths: dict[int, int] = {}

    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        """All of the prompt at once."""
        self._lengths[slot] = 0
        return self._read(slot, tokens)

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        """One sequence after another."""
        return torch.stack([self._read(slot, [token]) for slot, token in last.items()])

    def reset(self, slot: int) -> None:
        """What it wrote into the cache is written over later."""
        self._lengths.pop(slot, None)

    def _read(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        start = self._lengths[slot]
        self._lengths[slot] = start + len(tokens)
        return self._loop.decode_step(slot, torch.tensor(tokens, device=environment.DEVICE), start)


def create_backend(model: ServedModel) -> StockBackend:
    """Called once, before any request. Makes a token, so that kernels compile: later no process may be started.

    Raises UsageError for a snapshot that cannot be read, ValueError for knobs that do not go together.
    """
    environment.set_up()
    backend = choose_backend(model)
    backend.prefill(0, [0, 0])
    backend.decode({0: 0})
    backend.reset(0)
    return backend


def choose_backend(model: ServedModel) -> StockBackend:
    """As `create_backend`."""
    if (INSTALLERS or SESSIONS) and (environment.STEP == "loop" or not IS_STOCK):
        raise ValueError("kernels that were put back need SERVE_STEP=transformers and OP_NORM_GEMV=torch")
    if len(SESSIONS) + bool(INSTALLERS) > 1:
        raise ValueError("a session takes the place of the whole model; set the knobs of all others to stock")
    if SESSIONS:
        return SessionBackend(model, SESSIONS[0])
    if environment.STEP == "loop":
        return LoopBackend(model)
    backend = StockBackend(model)
    if not IS_STOCK:
        install_hooks(backend.module)
    for install in INSTALLERS:
        install(backend.module)
    return backend
