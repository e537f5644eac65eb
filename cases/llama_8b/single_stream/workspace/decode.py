"""One token of one sequence: five kernels a layer, and two for the token that follows.

A token reads every weight once and does two operations with each, so each kernel streams rows of a matrix; what is
multiplied with them is small and comes from the L2. The residual stream is kept in float32.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from knobs import knob

EPSILON = tl.constexpr(1e-5)

ROWS, WARPS = knob("LLAMA_TRITON_ROWS"), knob("LLAMA_TRITON_WARPS")
PAIRS = ROWS // 2
"""Of q, k and v, where two rows are turned together, and of gate and up."""
DOWN_STEP, SPLITS, BLOCK = (knob(f"LLAMA_{name}") for name in ("DOWN_STEP", "SPLITS", "ATTENTION_BLOCK"))
STREAM = "" if knob("LLAMA_STREAM") == "normal" else knob("LLAMA_STREAM")
"""Cache hint of weights."""

LARGE = tl.constexpr(2**31 - 1)


@triton.jit
def normed(x, norm, WIDTH: tl.constexpr):
    """A vector of the residual stream in float32, divided by its root mean square and weighted."""
    at = tl.arange(0, WIDTH)
    value = tl.load(x + at)
    return value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + EPSILON) * tl.load(norm + at).to(tl.float32)


@triton.jit
def begin(token, embedding, x, WIDTH: tl.constexpr):
    """The embedding of the token that is read first."""
    at = tl.arange(0, WIDTH)
    tl.store(x + at, tl.load(embedding + tl.load(token) * WIDTH + at).to(tl.float32))


@triton.jit(do_not_specialize=["position"])
def project(
    x, norm, weight, frequencies, q, keys, values, position, capacity, WIDTH: tl.constexpr, HEAD: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, PAIRS: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """Some rows of q, k or v of one head: element i and the one half a head further, which are turned together."""
    HALF: tl.constexpr = HEAD // 2
    head, part = tl.program_id(0) // (HALF // PAIRS), tl.program_id(0) % (HALF // PAIRS)
    pair = part * PAIRS + tl.arange(0, PAIRS)
    at = tl.arange(0, WIDTH)
    row = (head * HEAD + pair).to(tl.int64)
    first = tl.load(weight + row[:, None] * WIDTH + at[None, :], eviction_policy=STREAM)
    second = tl.load(weight + (row + HALF)[:, None] * WIDTH + at[None, :], eviction_policy=STREAM)
    value = normed(x, norm, WIDTH)[None, :]
    a, b = tl.sum(first.to(tl.float32) * value, 1), tl.sum(second.to(tl.float32) * value, 1)
    angle = tl.load(frequencies + pair) * position
    cosine, sine = tl.cos(angle), tl.sin(angle)
    if head < HEADS:
        tl.store(q + row, a * cosine - b * sine)
        tl.store(q + row + HALF, b * cosine + a * sine)
    elif head < HEADS + KV_HEADS:
        place = ((head - HEADS) * capacity + position) * HEAD + pair
        tl.store(keys + place, (a * cosine - b * sine).to(keys.dtype.element_ty))
        tl.store(keys + place + HALF, (b * cosine + a * sine).to(keys.dtype.element_ty))
    else:
        place = ((head - HEADS - KV_HEADS) * capacity + position) * HEAD + pair
        tl.store(values + place, a.to(values.dtype.element_ty))
        tl.store(values + place + HALF, b.to(values.dtype.element_ty))


@triton.jit(do_not_specialize=["position"])
def attend(
    q, keys, values, seen, maxima, sums, position, capacity, HEAD: tl.constexpr, HEADS: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The queries that share one head of the cache, over one part of its positions; not divided by their sum yet."""
    kv_head, split = tl.program_id(0), tl.program_id(1)
    length = tl.cdiv(position + 1, SPLITS)
    begins, ends = split * length, tl.minimum(position + 1, split * length + length)
    member, element, step = tl.arange(0, ROWS), tl.arange(0, HEAD), tl.arange(0, BLOCK)
    head, real = kv_head * GROUP + member, member < GROUP
    query = tl.load(q + head[:, None] * HEAD + element[None, :], mask=real[:, None], other=0.0)
    query = (query * HEAD**-0.5).to(keys.dtype.element_ty)
    most = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, HEAD), tl.float32)
    for start in range(begins, ends, BLOCK):
        there = start + step
        given = there < ends
        place = (kv_head * capacity + there)[:, None] * HEAD + element[None, :]
        key = tl.load(keys + place, mask=given[:, None], other=0.0)
        value = tl.load(values + place, mask=given[:, None], other=0.0)
        scores = tl.where(given[None, :], tl.dot(query, tl.trans(key)), -1e30)
        larger = tl.maximum(most, tl.max(scores, 1))
        power, before = tl.exp(scores - larger[:, None]), tl.exp(most - larger)
        total = total * before + tl.sum(power, 1)
        result = result * before[:, None] + tl.dot(power.to(value.dtype), value)
        most = larger
    row = split * HEADS + head
    tl.store(seen + row[:, None] * HEAD + element[None, :], result, mask=real[:, None])
    tl.store(maxima + row, most, mask=real)
    tl.store(sums + row, total, mask=real)


@triton.jit
def add_attention(
    seen, maxima, sums, weight, x, WIDTH: tl.constexpr, HEAD: tl.constexpr, HEADS: tl.constexpr,
    SPLITS: tl.constexpr, ROWS: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """The parts put together, and some rows of the output matrix added to the residual stream."""
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    rows = tl.load(weight + row[:, None].to(tl.int64) * WIDTH + at[None, :], eviction_policy=STREAM)
    head = at // HEAD
    most = tl.full((WIDTH,), -1e30, tl.float32)
    for split in tl.static_range(SPLITS):
        most = tl.maximum(most, tl.load(maxima + split * HEADS + head))
    above, below = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for split in tl.static_range(SPLITS):
        share = tl.exp(tl.load(maxima + split * HEADS + head) - most)
        above += share * tl.load(seen + split * WIDTH + at)
        below += share * tl.load(sums + split * HEADS + head)
    tl.store(x + row, tl.load(x + row) + tl.sum(rows.to(tl.float32) * (above / below)[None, :], 1))


@triton.jit
def gate_up(x, norm, gate, up, gated, WIDTH: tl.constexpr, ROWS: tl.constexpr, STREAM: tl.constexpr):
    """Some rows of both matrices of the gated layer."""
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place = row[:, None].to(tl.int64) * WIDTH + at[None, :]
    first = tl.load(gate + place, eviction_policy=STREAM)
    second = tl.load(up + place, eviction_policy=STREAM)
    value = normed(x, norm, WIDTH)[None, :]
    a, b = tl.sum(first.to(tl.float32) * value, 1), tl.sum(second.to(tl.float32) * value, 1)
    tl.store(gated + row, a * tl.sigmoid(a) * b)


@triton.jit
def add_down(
    gated, weight, x, WIDTH: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, STREAM: tl.constexpr
):
    """Some rows of the last matrix added to the residual stream."""
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, STEP)
    total = tl.zeros((ROWS,), tl.float32)
    for start in tl.static_range(0, WIDTH, STEP):
        place = row[:, None].to(tl.int64) * WIDTH + start + at[None, :]
        rows = tl.load(weight + place, eviction_policy=STREAM).to(tl.float32)
        total += tl.sum(rows * tl.load(gated + start + at)[None, :], 1)
    tl.store(x + row, tl.load(x + row) + total)


@triton.jit
def score(
    x, norm, weight, logits, best, best_row, vocab, WIDTH: tl.constexpr, ROWS: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """Some logits, the largest of them and the first token that has it."""
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    real = row < vocab
    rows = tl.load(
        weight + row[:, None].to(tl.int64) * WIDTH + at[None, :],
        mask=real[:, None],
        other=0.0,
        eviction_policy=STREAM,
    )
    found = tl.sum(rows.to(tl.float32) * normed(x, norm, WIDTH)[None, :], 1)
    tl.store(logits + row, found, mask=real)
    found = tl.where(real, found, -float("inf"))
    most = tl.max(found, 0)
    tl.store(best + tl.program_id(0), most)
    tl.store(best_row + tl.program_id(0), tl.min(tl.where(found == most, row, LARGE), 0))


@triton.jit
def choose(
    best, best_row, token, shift, embedding, x, vocab, parts, PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The token with the largest logit, and the embedding of what is read after it."""
    part, at = tl.arange(0, PARTS), tl.arange(0, WIDTH)
    value = tl.load(best + part, mask=part < parts, other=-float("inf"))
    row = tl.load(best_row + part, mask=part < parts, other=LARGE)
    found = tl.min(tl.where(value == tl.max(value, 0), row, LARGE), 0).to(tl.int64)
    tl.store(token, found)
    following = (found + tl.load(shift)) % vocab
    tl.store(x + at, tl.load(embedding + following * WIDTH + at).to(tl.float32))


class Decoder:
    """One model, and what is between its kernels."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self._w = weights
        self._head = weights.get("lm_head", weights["embedding"])
        self._qkv = torch.cat([weights[name] for name in "qkv"], 1)
        self._head_dim = 2 * weights["frequencies"].numel()
        self._heads = weights["q"].shape[1] // self._head_dim
        self._kv_heads = weights["k"].shape[1] // self._head_dim
        self._width, self._ffn = weights["q"].shape[2], weights["down"].shape[2]
        self._step = math.gcd(DOWN_STEP, self._ffn)  # a power of two, of which the columns are a multiple
        self._parts = triton.cdiv(len(self._head), ROWS)
        place = weights["q"].device
        float32: dict[str, Any] = {"dtype": torch.float32, "device": place}
        query = self._heads * self._head_dim
        self._x, self._q, self._gated = (torch.empty(n, **float32) for n in (self._width, query, self._ffn))
        self._seen = torch.empty(SPLITS * query, **float32)
        self._maxima, self._sums = (torch.empty(SPLITS * self._heads, **float32) for _ in range(2))
        self._best = torch.empty(self._parts, **float32)
        self._best_row = torch.empty(self._parts, dtype=torch.int32, device=place)

    def begin(self, token: torch.Tensor) -> None:
        """The token that is read next."""
        begin[(1,)](token, self._w["embedding"], self._x, WIDTH=self._width)

    def step(
        self,
        shifts: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        position: int,
        step: int,
    ) -> None:
        """One token more, and the embedding of what is read after it."""
        for layer in range(len(self._qkv)):
            self._attention(layer, keys[layer], values[layer], position)
            self._mlp(layer)
        w, vocab = self._w, logits.shape[2]
        score[(self._parts,)](
            self._x, w["norm"], self._head, logits[0, step], self._best, self._best_row, vocab,
            WIDTH=self._width, ROWS=ROWS, STREAM=STREAM, num_warps=WARPS,
        )  # fmt: skip
        choose[(1,)](
            self._best, self._best_row, tokens[0, step:], shifts[0, step:], w["embedding"], self._x, vocab,
            self._parts, PARTS=triton.next_power_of_2(self._parts), WIDTH=self._width, num_warps=8,
        )  # fmt: skip

    def _attention(self, layer: int, keys: torch.Tensor, values: torch.Tensor, position: int) -> None:
        w, capacity = self._w, keys.shape[2]
        sizes = {"HEAD": self._head_dim, "HEADS": self._heads}
        rows = self._heads + 2 * self._kv_heads
        project[(rows * (self._head_dim // 2 // PAIRS),)](
            self._x, w["attention_norm"][layer], self._qkv[layer], w["frequencies"], self._q, keys, values, position,
            capacity, WIDTH=self._width, KV_HEADS=self._kv_heads, PAIRS=PAIRS, STREAM=STREAM, num_warps=WARPS,
            **sizes,
        )  # fmt: skip
        group = self._heads // self._kv_heads
        attend[(self._kv_heads, SPLITS)](
            self._q, keys, values, self._seen, self._maxima, self._sums, position, capacity, GROUP=group,
            ROWS=max(16, triton.next_power_of_2(group)), BLOCK=BLOCK, SPLITS=SPLITS, num_warps=4, **sizes,
        )  # fmt: skip
        add_attention[(self._width // ROWS,)](
            self._seen, self._maxima, self._sums, w["o"][layer], self._x, WIDTH=self._heads * self._head_dim,
            SPLITS=SPLITS, ROWS=ROWS, STREAM=STREAM, num_warps=WARPS, **sizes,
        )  # fmt: skip

    def _mlp(self, layer: int) -> None:
        w = self._w
        gate_up[(self._ffn // PAIRS,)](
            self._x, w["mlp_norm"][layer], w["gate"][layer], w["up"][layer], self._gated, WIDTH=self._width,
            ROWS=PAIRS, STREAM=STREAM, num_warps=WARPS,
        )  # fmt: skip
        add_down[(self._width // ROWS,)](
            self._gated, w["down"][layer], self._x, WIDTH=self._ffn, ROWS=ROWS, STEP=self._step,
            STREAM=STREAM, num_warps=WARPS,
        )  # fmt: skip
