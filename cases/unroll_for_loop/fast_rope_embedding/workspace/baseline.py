"""RoPE, one program a position and group of heads: a loop over the group, queries, keys and both passes in turn."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

GROUP, WARPS = knob("ROPE_GROUP"), knob("ROPE_WARPS")


@triton.jit
def rotate_group(
    x, y, cos, sin, sequence, heads, HALF: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    BACKWARD: tl.constexpr,
):  # fmt: skip
    """The heads of one group at one position; backwards, the angle's sign is the other one."""
    place = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < HALF
    table = place % sequence * HALF + column
    c = tl.load(cos + table, mask=real, other=0)
    s = tl.load(sin + table, mask=real, other=0)
    if BACKWARD:
        s = -s
    first = tl.program_id(1) * GROUP
    for head in range(first, tl.minimum(first + GROUP, heads)):
        at = (place * heads + head) * 2 * HALF + column
        x1 = tl.load(x + at, mask=real, other=0).to(tl.float32)
        x2 = tl.load(x + at + HALF, mask=real, other=0).to(tl.float32)
        tl.store(y + at, (x1 * c - x2 * s).to(tl.bfloat16), mask=real)
        tl.store(y + at + HALF, (x2 * c + x1 * s).to(tl.bfloat16), mask=real)


def rotate(x: torch.Tensor, y: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, backward: bool) -> None:
    batch, sequence, heads, width = x.shape
    grid = (batch * sequence, triton.cdiv(heads, GROUP))
    block = triton.next_power_of_2(width // 2)
    rotate_group[grid](x, y, cos, sin, sequence, heads, width // 2, block, GROUP, backward, num_warps=WARPS)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dq_rotated: torch.Tensor,
    dk_rotated: torch.Tensor,
    q_rotated: torch.Tensor,
    k_rotated: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
) -> None:
    """q, k and gradients bfloat16 batch x sequence x heads x width; cos, sin float32 sequence x width / 2."""
    rotate(q, q_rotated, cos, sin, backward=False)
    rotate(k, k_rotated, cos, sin, backward=False)
    rotate(dq_rotated, dq, cos, sin, backward=True)
    rotate(dk_rotated, dk, cos, sin, backward=True)
