"""y = x / sqrt(mean(x^2) + eps) * weight of each token, float16: a token a program, walked twice in blocks of one size.

The first walk sums squares in float32, lane by lane, the second scales and writes. Channels that do not exist are zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("LLAMA_BLOCK"), knob("LLAMA_WARPS")


@triton.jit
def rms_norm(x, weight, y, hidden, eps, BLOCK: tl.constexpr):
    """One token."""
    first = tl.program_id(0).to(tl.int64) * hidden
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, hidden, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + channel, mask=channel < hidden, other=0).to(tl.float32)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, 0) / hidden + eps)
    for start in range(0, hidden, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + channel, mask=channel < hidden, other=0).to(tl.float32)
        factor = tl.load(weight + channel, mask=channel < hidden, other=0).to(tl.float32)
        tl.store(y + first + channel, (value * scale * factor).to(tl.float16), mask=channel < hidden)


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y tokens x hidden, weight hidden, all float16 and contiguous."""
    tokens, hidden = x.shape
    rms_norm[(tokens,)](x, weight, y, hidden, eps, BLOCK, num_warps=WARPS)
