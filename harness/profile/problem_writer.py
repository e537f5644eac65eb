"""Writes the problems that a vendor's tool runs a kernel on into one descriptor; see harness.channel.problem_pack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

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
def write_problem_pack(drafts: Sequence[ProblemDraft], device: str, seconds: float) -> Iterator[int]:
    """A descriptor that holds the pack, closed at the end of the block. OSError where memory is short."""
    problems, offset = [], 0
    for draft in drafts:
        inputs = []
        for tensor in draft.inputs.values():
            inputs.append(_packed(tensor, offset))
            offset += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        outputs = tuple(_packed(spec) for name, spec in draft.outputs.items() if name not in draft.inputs)
        changed = tuple(at for at, name in enumerate(draft.inputs) if name in draft.outputs)
        problems.append(
            PackedProblem(
                draft.problem, draft.weight, tuple(inputs), outputs, dict(draft.attributes), changed
            )
        )
    descriptor = os.memfd_create("hillclimb-pack", os.MFD_CLOEXEC)
    try:
        header = json.dumps(asdict(ProblemPack(device, seconds, tuple(problems)))).encode()
        start = data_start(len(header))
        os.ftruncate(descriptor, start + max(offset, 1))
        _write(descriptor, len(header).to_bytes(LENGTH_BYTES, "little") + header, 0)
        for packed, draft in zip(problems, drafts, strict=True):
            for part, tensor in zip(packed.inputs, draft.inputs.values(), strict=True):
                _write(descriptor, _bytes(tensor), start + part.offset)
        yield descriptor
    finally:
        os.close(descriptor)


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
