"""Tensors that stay the same for all calls of a pair's processes, such as weights: the judge's memory, read by both."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.channel.layout import SlotLayout, lay_out
from hillclimb.harness.channel.memory import CudaMemory, HostMemory
from hillclimb.harness.duel.process.arena import Arena, shapes_of
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

CHUNK = 1 << 22
"""Words that one checksum is of."""


def draw_parameters(contract: Contract, torch_device: str, secret: random.Random) -> Parameters | None:
    """Those of a contract, on torch's device; None where it has none."""
    seed = secret.getrandbits(62)

    def draw() -> Tensors:
        return contract.parameters(torch.Generator(torch_device).manual_seed(seed))

    tensors = draw()
    return Parameters(tensors, torch_device, draw) if tensors else None


@contextmanager
def drawn_parameters(
    contract: Contract, torch_device: str, secret: random.Random
) -> Iterator[Parameters | None]:
    """As `draw_parameters`, closed at the end of the block."""
    parameters = draw_parameters(contract, torch_device, secret)
    try:
        yield parameters
    finally:
        if parameters is not None:
            parameters.close()


def bound(contract: Contract, parameters: Parameters | None) -> Contract:
    """The contract with the parameters of a process."""
    return contract if parameters is None else contract.bound(parameters.tensors)


class Parameters:
    """Whoever makes them closes them; a process that has mapped them keeps the memory for as long as it lives.

    On the host the memory is sealed: nobody else can map it to write. Nothing can be sealed on a GPU, so there a
    checksum that nobody else can foretell is compared.
    """

    def __init__(self, tensors: Tensors, torch_device: str, draw: Callable[[], Tensors]) -> None:
        """Copies them; `draw` gives the same once more. CudaError where a GPU has not enough memory."""
        self._draw = draw
        self._is_sealed = not torch_device.startswith("cuda")
        allocate = partial(HostMemory, is_sealed=True) if self._is_sealed else CudaMemory
        self._arena = Arena(lay_out(shapes_of(tensors), (), 1), allocate)
        self._arena.fill(0, tensors)
        self.tensors = self._arena.inputs(0)
        self._weights = self._sums = torch.empty(0)
        if not self._is_sealed:
            secret = bytearray(secrets.token_bytes(8 * CHUNK))
            self._weights = torch.frombuffer(secret, dtype=torch.int64).to(torch_device)
            self._sums = self._checksums()

    @property
    def layout(self) -> SlotLayout:
        """One slot whose inputs they are."""
        return self._arena.layout

    def offer(self) -> tuple[dict[str, object], int]:
        """What a process is told of them, and the descriptor by which it maps them."""
        return {"op": "parameters", "layout": self.layout.to_json()}, self._arena.descriptor

    def require_unchanged(self) -> None:
        """Raises CandidateFault where anything was written to them, or beside them."""
        if not self._is_sealed and not torch.equal(self._checksums(), self._sums):
            raise CandidateFault(Reason.INPUTS_CHANGED, "the kernel wrote to its parameters")

    def restore(self) -> None:
        """Give them their values again, where one that had them may have written to them."""
        if not self._is_sealed:
            self._arena.fill(0, self._draw())
            self._arena.write_guards()
            torch.cuda.synchronize()

    def close(self) -> None:
        self.tensors = {}
        self._arena.close()

    def _checksums(self) -> torch.Tensor:
        return checksums(self._arena.words_of_32_bits(), self._weights)


def checksums(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of as many words of 32 bits as there are weights, each, modulo 2^64.

    With weights of 64 random bits the sums of two contents agree by a chance of 2^-33 at the most: the difference of
    two words has no more than 31 factors of two, so one of its multiples is hit by one weight in 2^33.
    """
    parts = torch.split(words, weights.numel())
    return torch.stack([(part.to(torch.int64) * weights[: part.numel()]).sum() for part in parts])
