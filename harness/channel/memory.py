"""One block of memory that judge and candidates share: on the host, or on a GPU. The judge's side."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Protocol

import torch


class Memory(Protocol):
    """Bytes that this process sees and whoever is given the descriptor can map."""

    bytes: torch.Tensor
    """Flat uint8."""
    descriptor: int

    def close(self) -> None:
        """Give it back; whoever else has mapped it keeps it for as long as they live."""


SEAL_FUTURE_WRITE = 0x0010
"""F_SEAL_FUTURE_WRITE of Linux 5.1, for which Python has no name."""


class HostMemory:
    """A memfd, as long as it was made for ever."""

    def __init__(self, nbytes: int, *, is_sealed: bool = False) -> None:
        """If it `is_sealed`, nobody else can map it to write, nor write to the descriptor."""
        self.descriptor = os.memfd_create("hillclimb-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, nbytes)
        self._memory = mmap.mmap(self.descriptor, nbytes)
        _seal(self.descriptor, SEAL_FUTURE_WRITE if is_sealed else 0)
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)

    def close(self) -> None:
        del self.bytes, self._memory
        os.close(self.descriptor)


class CudaMemory:
    """Device memory of the current GPU. Raises CudaError when there is not enough of it."""

    def __init__(self, nbytes: int) -> None:
        from hillclimb.harness.channel import vmm  # needs the driver's bindings, which a CPU does without

        self._mapping, self.descriptor = vmm.allocate(nbytes)
        self.bytes = vmm.as_bytes(self._mapping, nbytes)

    def close(self) -> None:
        torch.cuda.synchronize()
        del self.bytes
        self._mapping.unmap()
        os.close(self.descriptor)


def _seal(descriptor: int, more: int) -> None:
    """Nobody who maps this memory may shrink it under the judge's feet, or grow it; and what else is sealed."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | more
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
