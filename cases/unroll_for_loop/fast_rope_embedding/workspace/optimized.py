"""RoPE in one launch: pairs of elements numbered through, forward and backward together.

Pair e is column e % half of row e // half, and a row is one head at one position. Eight neighbouring pairs lie in one
row wherever half is a multiple of eight, so that every load has 16 bytes; no heads and no columns are padded. An
element and its gradient are at the same place and turned by the same angle, so one program does both. Tiles of queries
and of keys take turns, in rounds of as many positions, so that a position's angles are read from memory once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("ROPE_BLOCK"), knob("ROPE_WARPS")
READ, STORE = ("" if knob(name) == "normal" else knob(name) for name in ("ROPE_READ", "ROPE_STORE"))


@triton.jit
def turn_pairs(
    x, dy, y, dx, cos, sin, tile, pairs, sequence, HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """A block of pairs, all loads before the first store."""
    pair = tile * BLOCK + tl.arange(0, BLOCK)
    real = pair < pairs
    row, column = pair // HALF, pair % HALF
    first = row.to(tl.int64) * (2 * HALF) + column
    second = first + HALF
    x1 = tl.load(x + first, mask=real, eviction_policy=READ).to(tl.float32)
    x2 = tl.load(x + second, mask=real, eviction_policy=READ).to(tl.float32)
    g1 = tl.load(dy + first, mask=real, eviction_policy=READ).to(tl.float32)
    g2 = tl.load(dy + second, mask=real, eviction_policy=READ).to(tl.float32)
    angle = row // HEADS % sequence * HALF + column
    c, s = tl.load(cos + angle, mask=real), tl.load(sin + angle, mask=real)
    tl.store(y + first, (x1 * c - x2 * s).to(tl.bfloat16), mask=real, eviction_policy=STORE)
    tl.store(y + second, (x2 * c + x1 * s).to(tl.bfloat16), mask=real, eviction_policy=STORE)
    tl.store(dx + first, (g1 * c + g2 * s).to(tl.bfloat16), mask=real, eviction_policy=STORE)
    tl.store(dx + second, (g2 * c - g1 * s).to(tl.bfloat16), mask=real, eviction_policy=STORE)


@triton.jit
def turn_all(
    q, k, cos, sin, dq_rotated, dk_rotated, q_rotated, k_rotated, dq, dk, q_tiles, k_tiles, q_pairs, k_pairs, sequence,
    TURN: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """Rounds of TURN tiles of the queries and one of the keys."""
    part = tl.program_id(0) % (TURN + 1)
    key_tile = tl.program_id(0) // (TURN + 1)
    tile = key_tile * TURN + part
    if part < TURN:
        if tile < q_tiles:
            turn_pairs(
                q, dq_rotated, q_rotated, dq, cos, sin, tile, q_pairs, sequence, HEADS, HALF, BLOCK, READ, STORE
            )  # fmt: skip
    elif key_tile < k_tiles:
        turn_pairs(
            k, dk_rotated, k_rotated, dk, cos, sin, key_tile, k_pairs, sequence, KEY_HEADS, HALF, BLOCK, READ, STORE
        )  # fmt: skip


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
    sequence, half = cos.shape
    q_pairs, k_pairs = q.numel() // 2, k.numel() // 2
    q_tiles, k_tiles = triton.cdiv(q_pairs, BLOCK), triton.cdiv(k_pairs, BLOCK)
    turn = triton.cdiv(q_tiles, k_tiles)
    rounds = max(k_tiles, triton.cdiv(q_tiles, turn))
    turn_all[(rounds * (turn + 1),)](
        q, k, cos, sin, dq_rotated, dk_rotated, q_rotated, k_rotated, dq, dk, q_tiles, k_tiles, q_pairs, k_pairs,
        sequence, turn, q.shape[2], k.shape[2], half, BLOCK, READ, STORE, num_warps=WARPS,
    )  # fmt: skip
