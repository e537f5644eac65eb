"""CUDA memory that crosses a process border as a file descriptor, and tensors over it. Read by both sides.

Source: CUDA Driver API, "Virtual Memory Management" (cuMemCreate, cuMemExportToShareableHandle, cuMemMap). Legacy CUDA
IPC, which torch.multiprocessing uses, does not work across namespaces. The process sees one device, number 0, and has
made its primary context current before any function here is called.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from cuda.bindings import driver  # type: ignore[import-untyped]

DEVICE = 0
DESCRIPTOR = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


@dataclass(frozen=True)
class DeviceMapping:
    """A piece of device memory in this process's address space."""

    handle: Any
    address: int
    nbytes: int
    """Whole pages; what was asked for, rounded up."""

    def unmap(self) -> None:
        """Give address and memory back; nobody here may touch a tensor over it afterwards."""
        _check("cuMemUnmap", driver.cuMemUnmap(self.address, self.nbytes))
        _check("cuMemAddressFree", driver.cuMemAddressFree(self.address, self.nbytes))
        _check("cuMemRelease", driver.cuMemRelease(self.handle))


def allocate(nbytes: int) -> tuple[DeviceMapping, int]:
    """New device memory, mapped here, and a descriptor that others can map it from. Raises CudaError."""
    size = _whole_pages(nbytes)
    handle = _check("cuMemCreate", driver.cuMemCreate(size, _properties(), 0))
    exported = driver.cuMemExportToShareableHandle(handle, DESCRIPTOR, 0)
    return _map(handle, size), int(_check("cuMemExportToShareableHandle", exported))


def adopt(descriptor: int, nbytes: int) -> DeviceMapping:
    """Map memory that another process allocated, and close the descriptor. Raises CudaError."""
    handle = _check(
        "cuMemImportFromShareableHandle", driver.cuMemImportFromShareableHandle(descriptor, DESCRIPTOR)
    )
    os.close(descriptor)
    return _map(handle, _whole_pages(nbytes))


def as_bytes(mapping: DeviceMapping, nbytes: int, offset: int = 0) -> torch.Tensor:
    """`nbytes` of a mapping as a flat uint8 tensor that owns nothing, with a storage of its own."""
    return torch.as_tensor(_Interface(mapping.address + offset, nbytes), device=f"cuda:{DEVICE}")


def use_spin_scheduling() -> None:
    """Let this process's synchronizations spin; before its context is made. Raises CudaError."""
    _check("cuInit", driver.cuInit(0))
    device = _check("cuDeviceGet", driver.cuDeviceGet(DEVICE))
    flags = int(driver.CUctx_flags.CU_CTX_SCHED_SPIN)
    _check("cuDevicePrimaryCtxSetFlags", driver.cuDevicePrimaryCtxSetFlags(device, flags))


class _Interface:
    """What torch needs to see raw memory as a tensor (the CUDA array interface, version 3)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _map(handle: Any, size: int) -> DeviceMapping:
    address = int(_check("cuMemAddressReserve", driver.cuMemAddressReserve(size, 0, 0, 0)))
    _check("cuMemMap", driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location = _location()
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    _check("cuMemSetAccess", driver.cuMemSetAccess(address, size, [access], 1))
    return DeviceMapping(handle, address, size)


def _location() -> Any:
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = DEVICE
    return location


def _properties() -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = _location()
    properties.requestedHandleTypes = DESCRIPTOR
    return properties


def _whole_pages(nbytes: int) -> int:
    wanted = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    page = _check(
        "cuMemGetAllocationGranularity", driver.cuMemGetAllocationGranularity(_properties(), wanted)
    )
    return -(-nbytes // int(page)) * int(page)


def _check(call: str, result: tuple[Any, ...]) -> Any:
    """The call's value, if it has one."""
    error, *values = result
    if int(error) != 0:
        raise CudaError(f"{call}: {driver.CUresult(error).name}")
    return values[0] if values else None


class CudaError(Exception):
    """A call of CUDA's driver failed; the message names the call and the error."""
