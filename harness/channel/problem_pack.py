"""What a run under a tool is given: problems with the values of their inputs, in one descriptor that both sides map.

    bytes 0 to 7    length of the header, little-endian
    header          JSON of ProblemPack
    data            every input's bytes at its offset

Inputs travel as values, for random ones would break kernels that follow indices, lengths or offsets.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from hillclimb.harness.channel.layout import Attributes, read_attributes
from hillclimb.harness.channel.strides import Shape, contiguous_strides

ALIGNMENT = 512
LENGTH_BYTES = 8


@dataclass(frozen=True)
class PackedTensor:
    """One tensor. `dtype` is its name in torch, as in "bfloat16"; `offset` counts from the start of the data."""

    shape: Shape
    dtype: str
    offset: int = 0
    strides: Shape | None = None
    """Elements from one index to the next in each dimension; None: C-contiguous. Packed it always is."""

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype


@dataclass(frozen=True)
class PackedProblem:
    """One problem: `weight` is its size beside the others', by which times are foretold."""

    problem: str
    weight: float
    inputs: tuple[PackedTensor, ...]
    outputs: tuple[PackedTensor, ...]
    """Those that are no inputs."""
    attributes: Attributes
    changed: tuple[int, ...] = ()
    """Which inputs are outputs, too: a call changes them in place."""


@dataclass(frozen=True)
class ProblemPack:
    """One run under a tool: where the tensors live, how many seconds it may take, and the problems in their order."""

    device: str
    seconds: float
    problems: tuple[PackedProblem, ...]
    parameters: Mapping[str, PackedTensor] = field(default_factory=dict)
    """What stays the same for all of them, by name."""

    @classmethod
    def from_json(cls, text: str) -> ProblemPack:
        told = json.loads(text)
        problems = (
            PackedProblem(
                problem=packed["problem"],
                weight=packed["weight"],
                inputs=tuple(_part(part) for part in packed["inputs"]),
                outputs=tuple(_part(part) for part in packed["outputs"]),
                attributes=read_attributes(packed["attributes"]),
                changed=tuple(packed["changed"]),
            )
            for packed in told["problems"]
        )
        parameters = {name: _part(part) for name, part in told["parameters"].items()}
        return cls(told["device"], told["seconds"], tuple(problems), parameters)


class ProblemPackReader:
    """The other side: tensors of a pack's problems."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        length = int.from_bytes(self._memory[:LENGTH_BYTES], "little")
        self.pack = ProblemPack.from_json(self._memory[LENGTH_BYTES : LENGTH_BYTES + length].decode())
        self._start = data_start(length)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Each in an allocation of its own."""
        tensors = {name: self._empty(part) for name, part in self.pack.parameters.items()}
        for name, part in self.pack.parameters.items():
            self._fill(tensors[name], part)
        return tensors

    def tensors(self, problem: PackedProblem) -> tuple[torch.Tensor, ...]:
        """Inputs, then outputs with whatever their memory holds; each in an allocation of its own."""
        tensors = tuple(self._empty(part) for part in (*problem.inputs, *problem.outputs))
        for tensor, part in zip(tensors, problem.inputs, strict=False):
            self._fill(tensor, part)
        return tensors

    def restore_changed(self, problem: PackedProblem, tensors: Sequence[torch.Tensor]) -> None:
        """Give the inputs that a call changes in place the values that they had before it."""
        for at in problem.changed:
            self._fill(tensors[at], problem.inputs[at])

    def _empty(self, part: PackedTensor) -> torch.Tensor:
        strides = contiguous_strides(part.shape) if part.strides is None else part.strides
        return torch.empty_strided(part.shape, strides, dtype=part.torch_dtype, device=self.pack.device)

    def _fill(self, tensor: torch.Tensor, part: PackedTensor) -> None:
        if count := prod(part.shape):
            start = self._start + part.offset
            flat = torch.frombuffer(self._memory, dtype=part.torch_dtype, count=count, offset=start)
            tensor.copy_(flat.reshape(part.shape))


def _part(told: Mapping[str, Any]) -> PackedTensor:
    strides = None if told["strides"] is None else tuple(told["strides"])
    return PackedTensor(tuple(told["shape"]), told["dtype"], told["offset"], strides)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def data_start(header_length: int) -> int:
    return -(-(LENGTH_BYTES + header_length) // ALIGNMENT) * ALIGNMENT
