"""2-D convolution as an implicit matrix product: pixels of y by filters, over the filter's places and the channels.

A program makes one tile of y. For each place of the filter it walks through the channels of its group, BLOCK_C a step.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK_P, BLOCK_O, BLOCK_C = knob("CV_BLOCK_P") or 64, knob("CV_BLOCK_O") or 32, knob("CV_BLOCK_C") or 32
WARPS, STAGES = knob("CV_WARPS") or 4, knob("CV_STAGES") or 3


@triton.jit
def convolve(
    x, w, y, N, C, H, W, F, P, Q, R, S, stride_h, stride_w, padding_h, padding_w, groups,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """BLOCK_P pixels of BLOCK_O filters of one group; C and F are the channels and filters of a group."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    out = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    group = tl.program_id(2)
    image, row, column = pixel // (P * Q), pixel // Q % P, pixel % Q
    image_start = x + (image.to(tl.int64) * groups + group) * C * H * W
    filter_start = w + (group * F + out).to(tl.int64) * C * R * S
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for r in range(R):
        for s in range(S):
            h, v = row * stride_h - padding_h + r, column * stride_w - padding_w + s
            seen = (image < N) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
            for c in range(0, C, BLOCK_C):
                channel = c + tl.arange(0, BLOCK_C)
                x_tile = image_start[:, None] + channel[None, :] * (H * W) + (h * W + v)[:, None]
                w_tile = filter_start[None, :] + channel[:, None] * (R * S) + r * S + s
                left = tl.load(x_tile, mask=seen[:, None] & (channel < C)[None, :], other=0.0)
                right = tl.load(w_tile, mask=(channel < C)[:, None] & (out < F)[None, :], other=0.0)
                total = tl.dot(left, right, total)
    y_row = ((image.to(tl.int64) * groups + group) * F * P + row) * Q + column
    at = y + y_row[:, None] + out[None, :] * (P * Q)
    tl.store(at, total.to(tl.float16), mask=(image < N)[:, None] & (out < F)[None, :])


def run(
    x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, *,
    stride_h: int, stride_w: int, padding_h: int, padding_w: int, groups: int,
) -> None:  # fmt: skip
    """x is N x C x H x W, w is F x C/groups x R x S, y is N x F x P x Q; contiguous float16."""
    (images, channels, height, width), (filters, _, r, s) = x.shape, w.shape
    p, q = y.shape[2:]
    pixels, channels, filters = images * p * q, channels // groups, filters // groups
    grid = (triton.cdiv(pixels, BLOCK_P), triton.cdiv(filters, BLOCK_O), groups)
    convolve[grid](
        x, w, y, images, channels, height, width, filters, p, q, r, s,
        stride_h, stride_w, padding_h, padding_w, groups, BLOCK_P, BLOCK_O, BLOCK_C,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
