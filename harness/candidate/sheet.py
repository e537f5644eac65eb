"""What a rehearsal is given: problems with the values of their inputs, in one descriptor that both sides map.

    bytes 0 to 7    length of the header, little-endian
    header          JSON of Sheet
    data            every input's bytes at its offset

Inputs travel as values, for random ones would break kernels that follow indices, lengths or offsets.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch

from harness.case.contract import Attributes, Spec

ALIGNMENT = 512
LENGTH_BYTES = 8


@dataclass(frozen=True)
class Part:
    """One tensor. `dtype` is its name in torch, as in "bfloat16"; `offset` counts from the start of the data."""

    shape: tuple[int, ...]
    dtype: str
    offset: int = 0

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype


@dataclass(frozen=True)
class Scene:
    """One problem: `weight` is its size beside the others', by which times are foretold."""

    problem: str
    weight: float
    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]
    attributes: Attributes


@dataclass(frozen=True)
class Sheet:
    """A rehearsal: where the tensors live, how many seconds it may take, and the problems in their order."""

    device: str
    seconds: float
    scenes: tuple[Scene, ...]

    @classmethod
    def from_json(cls, text: str) -> Sheet:
        told = json.loads(text)
        scenes = (
            Scene(
                problem=scene["problem"],
                weight=scene["weight"],
                inputs=tuple(_part(part) for part in scene["inputs"]),
                outputs=tuple(_part(part) for part in scene["outputs"]),
                attributes=scene["attributes"],
            )
            for scene in told["scenes"]
        )
        return cls(told["device"], told["seconds"], tuple(scenes))


@dataclass(frozen=True)
class Draft:
    """A problem before it is written down; `inputs` and `outputs` in call order."""

    problem: str
    weight: float
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, Spec]
    attributes: Attributes


@contextmanager
def written(drafts: Sequence[Draft], device: str, seconds: float) -> Iterator[int]:
    """A descriptor that holds the sheet, closed at the end of the block. OSError where memory is short."""
    scenes, offset = [], 0
    for draft in drafts:
        inputs = []
        for tensor in draft.inputs.values():
            inputs.append(Part(tuple(tensor.shape), _name(tensor.dtype), offset))
            offset += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        outputs = tuple(Part(spec.shape, _name(spec.dtype)) for spec in draft.outputs.values())
        scenes.append(Scene(draft.problem, draft.weight, tuple(inputs), outputs, dict(draft.attributes)))
    descriptor = os.memfd_create("hillclimb-sheet", os.MFD_CLOEXEC)
    try:
        header = json.dumps(asdict(Sheet(device, seconds, tuple(scenes)))).encode()
        start = _data_start(len(header))
        os.ftruncate(descriptor, start + max(offset, 1))
        _write(descriptor, len(header).to_bytes(LENGTH_BYTES, "little") + header, 0)
        for scene, draft in zip(scenes, drafts, strict=True):
            for part, tensor in zip(scene.inputs, draft.inputs.values(), strict=True):
                _write(descriptor, _bytes(tensor), start + part.offset)
        yield descriptor
    finally:
        os.close(descriptor)


class Reader:
    """The other side: tensors of a sheet's scenes."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        length = int.from_bytes(self._memory[:LENGTH_BYTES], "little")
        self.sheet = Sheet.from_json(self._memory[LENGTH_BYTES : LENGTH_BYTES + length].decode())
        self._start = _data_start(length)

    def tensors(self, scene: Scene) -> tuple[torch.Tensor, ...]:
        """Inputs, then outputs with whatever their memory holds; each in an allocation of its own."""
        inputs = (self._input(part) for part in scene.inputs)
        outputs = (
            torch.empty(part.shape, dtype=part.torch_dtype, device=self.sheet.device)
            for part in scene.outputs
        )
        return (*inputs, *outputs)

    def _input(self, part: Part) -> torch.Tensor:
        count = prod(part.shape)
        if not count:
            return torch.empty(part.shape, dtype=part.torch_dtype, device=self.sheet.device)
        flat = torch.frombuffer(
            self._memory, dtype=part.torch_dtype, count=count, offset=self._start + part.offset
        )
        return flat.reshape(part.shape).to(self.sheet.device, copy=True)


def _part(told: Mapping[str, Any]) -> Part:
    return Part(tuple(told["shape"]), told["dtype"], told["offset"])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _data_start(header_length: int) -> int:
    return -(-(LENGTH_BYTES + header_length) // ALIGNMENT) * ALIGNMENT


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat: memoryview = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return flat


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    left = memoryview(data)
    while left:
        done = os.pwrite(descriptor, left, offset)
        left, offset = left[done:], offset + done
