"""Tensors that stay the same for all calls of a pair's processes, such as weights: the judge's memory, read by both."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.channel.layout import SlotLayout, lay_out
from hillclimb.harness.channel.memory import CudaMemory, HostMemory
from hillclimb.harness.duel.process.arena import Arena, shapes_of
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

CHUNK = 1 << 22
"""Words that one checksum is of."""

COPIES = 5
"""Of the parameters, for each pair that is got ready."""


def draw_parameters(contract: Contract, torch_device: str, secret: random.Random) -> Parameters | None:
    """Those of a contract, on torch's device; None where it has none."""
    generator = torch.Generator(torch_device).manual_seed(secret.getrandbits(62))
    tensors = contract.parameters(generator)
    return Parameters(tensors, torch_device) if tensors else None


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
    """Their values, which no candidate can change. Whoever makes them closes them."""

    def __init__(self, tensors: Tensors, torch_device: str) -> None:
        self._place = torch_device
        self._shared = None if torch_device.startswith("cuda") else LentParameters(tensors, torch_device)
        self.tensors = tensors if self._shared is None else self._shared.tensors
        self.nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())

    def lend(self) -> LentParameters:
        """Memory for a process to map: on the host the same for all, on a GPU each has its own, which it may spoil.

        CudaError where a GPU has not enough of it.
        """
        return self._shared or LentParameters(self.tensors, self._place)

    def close(self) -> None:
        self.tensors = {}
        if self._shared is not None:
            self._shared.release()


class LentParameters:
    """A copy that a process maps. It keeps the memory for as long as it lives, whoever gives it back here.

    On the host the memory is sealed: nobody else can map it to write. Nothing can be sealed on a GPU, so there a
    checksum that nobody else can foretell is compared.
    """

    def __init__(self, tensors: Tensors, torch_device: str) -> None:
        self._is_sealed = not torch_device.startswith("cuda")
        allocate = partial(HostMemory, is_sealed=True) if self._is_sealed else CudaMemory
        self._arena = Arena(lay_out(shapes_of(tensors), (), 1), allocate)
        self._arena.fill(0, tensors)
        self.tensors = self._arena.inputs(0)
        self._weights = self._sums = torch.empty(0)
        if not self._is_sealed:
            words = self._arena.words_of_32_bits()
            secret = bytearray(secrets.token_bytes(8 * min(CHUNK, words.numel())))
            self._weights = torch.frombuffer(secret, dtype=torch.int64).to(torch_device)
            self._sums = checksums(words, self._weights)

    @property
    def layout(self) -> SlotLayout:
        """One slot whose inputs they are."""
        return self._arena.layout

    def offer(self) -> tuple[dict[str, Any], int]:
        """What the process is told of them, and the descriptor by which it maps them."""
        return {"op": "parameters", "layout": self.layout.to_json()}, self._arena.descriptor

    def require_unchanged(self) -> None:
        """Raises CandidateFault where anything was written to them, or beside them."""
        if self._is_sealed:
            return
        if not torch.equal(checksums(self._arena.words_of_32_bits(), self._weights), self._sums):
            raise CandidateFault(Reason.INPUTS_CHANGED, "the kernel wrote to its parameters")

    def give_back(self) -> None:
        """The process is gone; what others have as well stays."""
        if not self._is_sealed:
            self.release()

    def release(self) -> None:
        self.tensors = {}
        self._arena.close()


def pairs_with_room(parameters: Parameters | None, pairs: int, free_bytes: Callable[[], int]) -> int:
    """How many of so many pairs a GPU has room for: of each the values, a copy for either side, what either packs."""
    if parameters is None:
        return pairs
    return max(1, min(pairs, free_bytes() // (COPIES * parameters.nbytes)))


def checksums(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of as many words of 32 bits as there are weights, each, modulo 2^64.

    With weights of 64 random bits the sums of two contents agree by a chance of 2^-33 at the most: the difference of
    two words has no more than 31 factors of two, so one of its multiples is hit by one weight in 2^33.
    """
    parts = torch.split(words, weights.numel())
    return torch.stack([(part.to(torch.int64) * weights[: part.numel()]).sum() for part in parts])
