"""Memory that others map: what of it they may change."""

from __future__ import annotations

import mmap
import os

import pytest

from hillclimb.harness.channel.memory import HostMemory


@pytest.fixture(params=[False, True], ids=["shared", "sealed"])
def memory(request: pytest.FixtureRequest) -> HostMemory:
    return HostMemory(8192, is_sealed=request.param)


def test_its_size_stays(memory: HostMemory) -> None:
    for size in (0, 4096, 16384):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)
    memory.close()


def test_what_is_sealed_can_be_read_by_others_and_written_by_us_alone() -> None:
    memory = HostMemory(8192, is_sealed=True)
    reopened = os.open(f"/proc/self/fd/{memory.descriptor}", os.O_RDWR)
    for descriptor in (memory.descriptor, reopened):
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 8192)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        theirs = mmap.mmap(descriptor, 8192, prot=mmap.PROT_READ)
        memory.bytes[7] = 3
        assert theirs[7] == 3
        memory.bytes[7] = 0
        with pytest.raises(TypeError):
            theirs[7] = 4
        theirs.close()
    os.close(reopened)
    memory.close()
