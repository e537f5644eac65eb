"""Writes the problems that a vendor's tool runs a kernel on into one descriptor; see harness.channel.problem_pack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import MappingProxyType

import torch

from hillclimb.harness.case.contract import Spec
from hillclimb.harness.case.operands import bytes_of, strides_of
from hillclimb.harness.channel.layout import Attributes
from hillclimb.harness.channel.problem_pack import (
    ALIGNMENT,
    LENGTH_BYTES,
    PackedProblem,
    PackedTensor,
    ProblemPack,
    data_start,
    dtype_name,
)


@dataclass(frozen=True)
class ProblemDraft:
    """A problem before it is written down; `inputs` and `outputs` in call order."""

    problem: str
    weight: float
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, Spec]
    attributes: Attributes


@contextmanager
def write_problem_pack(
    drafts: Sequence[ProblemDraft],
    device: str,
    seconds: float,
    parameters: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Iterator[int]:
    """A descriptor that holds the pack, closed at the end of the block. OSError where memory is short."""
    problems, places = [], _Places()
    packed_parameters = {name: places.take(tensor) for name, tensor in parameters.items()}
    for draft in drafts:
        inputs = [places.take(tensor) for tensor in draft.inputs.values()]
        outputs = tuple(_packed(spec) for name, spec in draft.outputs.items() if name not in draft.inputs)
        changed = tuple(at for at, name in enumerate(draft.inputs) if name in draft.outputs)
        problems.append(
            PackedProblem(
                draft.problem, draft.weight, tuple(inputs), outputs, dict(draft.attributes), changed
            )
        )
    descriptor = os.memfd_create("hillclimb-pack", os.MFD_CLOEXEC)
    try:
        pack = ProblemPack(device, seconds, tuple(problems), packed_parameters)
        header = json.dumps(asdict(pack)).encode()
        start = data_start(len(header))
        os.ftruncate(descriptor, start + max(places.end, 1))
        _write(descriptor, len(header).to_bytes(LENGTH_BYTES, "little") + header, 0)
        for part, tensor in places.taken:
            _write(descriptor, _bytes(tensor), start + part.offset)
        yield descriptor
    finally:
        os.close(descriptor)


class _Places:
    """Where the values of tensors lie, one behind another."""

    def __init__(self) -> None:
        self.end = 0
        self.taken: list[tuple[PackedTensor, torch.Tensor]] = []

    def take(self, tensor: torch.Tensor) -> PackedTensor:
        part = _packed(tensor, self.end)
        self.end += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        self.taken.append((part, tensor))
        return part


def _packed(one: torch.Tensor | Spec, offset: int = 0) -> PackedTensor:
    return PackedTensor(tuple(one.shape), dtype_name(one.dtype), offset, strides_of(one))


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat: memoryview = bytes_of(tensor.detach().cpu()).numpy().data
    return flat


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    left = memoryview(data)
    while left:
        done = os.pwrite(descriptor, left, offset)
        left, offset = left[done:], offset + done
