"""Ragged copy, one program a segment, a block at a time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("VLC_BLOCK"), knob("VLC_WARPS") or 4


@triton.jit
def copy_segment(source, source_offsets, destination_offsets, lengths, destination, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    length = tl.load(lengths + segment)
    here = source + tl.load(source_offsets + segment)
    there = destination + tl.load(destination_offsets + segment)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(there + at, tl.load(here + at, mask=at < length), mask=at < length)


def run(
    source: torch.Tensor,
    source_offsets: torch.Tensor,
    destination_offsets: torch.Tensor,
    lengths: torch.Tensor,
    destination: torch.Tensor,
) -> None:
    """All int32; offsets and lengths of segments, which tile the destination in their order."""
    grid = (len(lengths),)
    copy_segment[grid](
        source, source_offsets, destination_offsets, lengths, destination, BLOCK, num_warps=WARPS
    )
