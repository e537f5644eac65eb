"""Diagonal recurrence y_t = a * y_{t-1} + x_t and its gradients: a loop over time for each block of channels.

Complex numbers lie interleaved, (real, imaginary); a channel is one (batch, dim) pair.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("DS_PLAIN_BLOCK"), knob("DS_PLAIN_WARPS")


@triton.jit
def forward(s, x, a, y, length, channels, dim, BLOCK: tl.constexpr):
    """y of BLOCK channels, step after step."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = channel < channels
    decay = tl.load(a + channel % dim)
    state = tl.load(s + channel, mask=real, other=0.0)
    for step in range(length):
        at = tl.cast(step, tl.int64) * channels + channel
        state = decay * state + tl.load(x + at, mask=real, other=0.0)
        tl.store(y + at, state, mask=real)


@triton.jit
def backward(s, a, dy, y, ds, dx, shares, length, channels, dim, BLOCK: tl.constexpr):
    """dx and ds of BLOCK channels from the last step to the first; each channel's share of da."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = channel < channels
    decay = tl.load(a + channel % dim)
    gradient = tl.zeros([BLOCK], tl.float32)
    share = tl.zeros([BLOCK], tl.float64)
    for back in range(length):
        step = length - 1 - back
        at = tl.cast(step, tl.int64) * channels + channel
        before = tl.load(tl.where(at < channels, s + channel, y + at - channels), mask=real, other=0.0)
        gradient = decay * gradient + tl.load(dy + at, mask=real, other=0.0)
        share += (gradient * before).to(tl.float64)
        tl.store(dx + at, gradient, mask=real)
    tl.store(ds + channel, decay * gradient, mask=real)
    tl.store(shares + channel, share, mask=real)


@triton.jit
def forward_complex(s, x, a, y, length, channels, dim, BLOCK: tl.constexpr):
    """As forward, on complex numbers."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = channel < channels
    a_re, a_im = tl.load(a + channel % dim * 2), tl.load(a + channel % dim * 2 + 1)
    re = tl.load(s + channel * 2, mask=real, other=0.0)
    im = tl.load(s + channel * 2 + 1, mask=real, other=0.0)
    for step in range(length):
        at = (tl.cast(step, tl.int64) * channels + channel) * 2
        x_re, x_im = tl.load(x + at, mask=real, other=0.0), tl.load(x + at + 1, mask=real, other=0.0)
        re, im = a_re * re - a_im * im + x_re, a_re * im + a_im * re + x_im
        tl.store(y + at, re, mask=real)
        tl.store(y + at + 1, im, mask=real)


@triton.jit
def backward_complex(s, a, dy, y, ds, dx, shares, length, channels, dim, BLOCK: tl.constexpr):
    """As backward, on complex numbers: with the conjugates of decay and states."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = channel < channels
    a_re, a_im = tl.load(a + channel % dim * 2), tl.load(a + channel % dim * 2 + 1)
    re = tl.zeros([BLOCK], tl.float32)
    im = tl.zeros([BLOCK], tl.float32)
    share_re = tl.zeros([BLOCK], tl.float64)
    share_im = tl.zeros([BLOCK], tl.float64)
    for back in range(length):
        step = length - 1 - back
        at = (tl.cast(step, tl.int64) * channels + channel) * 2
        before = tl.where(at < 2 * channels, s + channel * 2, y + at - 2 * channels)
        y_re, y_im = tl.load(before, mask=real, other=0.0), tl.load(before + 1, mask=real, other=0.0)
        dy_re, dy_im = tl.load(dy + at, mask=real, other=0.0), tl.load(dy + at + 1, mask=real, other=0.0)
        re, im = a_re * re + a_im * im + dy_re, a_re * im - a_im * re + dy_im
        share_re += (re * y_re + im * y_im).to(tl.float64)
        share_im += (im * y_re - re * y_im).to(tl.float64)
        tl.store(dx + at, re, mask=real)
        tl.store(dx + at + 1, im, mask=real)
    tl.store(ds + channel * 2, a_re * re + a_im * im, mask=real)
    tl.store(ds + channel * 2 + 1, a_re * im - a_im * re, mask=real)
    tl.store(shares + channel * 2, share_re, mask=real)
    tl.store(shares + channel * 2 + 1, share_im, mask=real)


@triton.jit
def add_shares(shares, da, rows, columns, BLOCK: tl.constexpr):
    """da = sum of the rows of shares, in float64."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = column < columns
    total = tl.zeros([BLOCK], tl.float64)
    for row in range(rows):
        total += tl.load(shares + row * columns + column, mask=real, other=0.0)
    tl.store(da + column, total.to(tl.float32), mask=real)


def run(
    s: torch.Tensor, x: torch.Tensor, a: torch.Tensor, dy: torch.Tensor,
    y: torch.Tensor, ds: torch.Tensor, dx: torch.Tensor, da: torch.Tensor,
) -> None:  # fmt: skip
    """s (batch, dim), x, dy, y, dx (length, batch, dim), a, da (dim), all float32; complex where one more
    dimension (real, imaginary) follows."""
    length, batch, dim = x.shape[:3]
    channels = batch * dim
    grid = (triton.cdiv(channels, BLOCK),)
    shares = torch.empty((batch, *a.shape), dtype=torch.float64, device=x.device)
    first, second = (forward_complex, backward_complex) if x.dim() == 4 else (forward, backward)
    first[grid](s, x, a, y, length, channels, dim, BLOCK, num_warps=WARPS)
    second[grid](s, a, dy, y, ds, dx, shares, length, channels, dim, BLOCK, num_warps=WARPS)
    add_shares[(triton.cdiv(a.numel(), BLOCK),)](shares, da, batch, a.numel(), BLOCK, num_warps=WARPS)
