"""A Llama of any size in plain torch: what a session's tokens and logits are compared with.

Source of the architecture: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971,
with grouped-query attention (arXiv:2305.13245). Rotary embeddings turn the two halves of a head against each other, as
Hugging Face's weights have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch.nn import functional

from hillclimb.harness.case.contract import Tensors

LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
"""The matrices of a layer, each kept as [layers, out, in]."""

CHANNEL_BITS = 3
"""Of two, the power by which channels of random weights are larger or smaller at the most."""


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    head_dim: int
    theta: float = field(default=10_000.0, compare=False)
    """Base of the rotary embedding of weights that are drawn."""
    eps: float = 1e-5
    """Added to the mean square in a normalisation."""
    tied: bool = True
    """Whether the logits are made with the embedding."""

    def __post_init__(self) -> None:
        """Raises ValueError for sizes that no model has."""
        for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim"):
            if (size := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {size}; give 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads is {self.heads}; give a multiple of kv_heads, {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim is {self.head_dim}; give an even number, whose halves are turned together"
            )

    @property
    def frequencies(self) -> torch.Tensor:
        """Radians a position of each pair of a head's elements, float32 [head_dim / 2]."""
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        return (self.theta**-steps).float()

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """(out, in) of each of LINEARS."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q": (q, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "o": (self.hidden, q),
            "gate": (self.ffn, self.hidden),
            "up": (self.ffn, self.hidden),
            "down": (self.hidden, self.ffn),
        }

    @property
    def streamed_weights(self) -> int:
        """How many weights every token needs, without the embedding's rows."""
        per_layer = sum(out * within for out, within in self.matrices.values()) + 2 * self.hidden
        return self.layers * per_layer + self.hidden + self.vocab * self.hidden

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all weights, by name."""
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocab, self.hidden)}
        shapes |= {name: (self.layers, *sizes) for name, sizes in self.matrices.items()}
        shapes |= dict.fromkeys(("attention_norm", "mlp_norm"), (self.layers, self.hidden))
        shapes["norm"] = (self.hidden,)
        return shapes if self.tied else {**shapes, "lm_head": (self.vocab, self.hidden)}


def seeded_weights(shape: LlamaShape, dtype: torch.dtype, generator: torch.Generator) -> Tensors:
    """Random weights by which scores and logits are about 1 in size, and `frequencies` in float32.

    What the layers add outweighs the embedding, so that a model with a tied head does not repeat what it reads.
    Of each row of a matrix the elements differ by up to 4096 in size, as does what they are multiplied with: rounded to
    whole multiples of a unit, by rows or by groups, most of them are lost. Between floating-point numbers it changes
    nothing.
    """
    place = generator.device

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=generator, device=place)

    def channels(count: int) -> torch.Tensor:
        exponents = 2 * torch.rand(count, generator=generator, device=place) - 1
        return torch.exp2(CHANNEL_BITS * exponents)

    weights = {
        name: torch.empty(sizes, dtype=dtype, device=place) for name, sizes in shape.weight_shapes().items()
    }
    stream, added = channels(shape.hidden), 2 * (2 * shape.layers) ** -0.5
    stream *= (stream**-2).mean().sqrt()  # what a norm gives is about 1 then, whatever its channels
    heads = ("embedding",) if shape.tied else ("embedding", "lm_head")
    for name in heads:
        weights[name].copy_(normal(shape.vocab, shape.hidden) * shape.hidden**-0.5 / stream)
    weights["norm"].copy_(stream * stream)
    for layer in range(shape.layers):
        read, gated, made = channels(shape.hidden), channels(shape.hidden), channels(shape.ffn)
        weights["attention_norm"][layer] = stream * read
        weights["mlp_norm"][layer] = stream * gated
        scales = {
            **dict.fromkeys("qkv", 1 / read),
            "o": added / stream[:, None],
            "gate": 1 / gated,
            "up": made[:, None] / gated,
            "down": added / (made * stream[:, None]),
        }
        for name, sizes in shape.matrices.items():
            weights[name][layer] = normal(*sizes) * sizes[1] ** -0.5 * scales[name]
    return {**weights, "frequencies": shape.frequencies.to(place)}


class Cache(NamedTuple):
    """Keys and values of the tokens so far, each [layers, batch, kv_heads, positions, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class Llama:
    """Computes in the dtype that its weights have; norms and softmax in float32 at the least."""

    shape: LlamaShape
    weights: Tensors
    scales: Mapping[tuple[str, int], torch.Tensor] = field(default_factory=lambda: MappingProxyType({}))
    """What the output of a matrix is multiplied with, [batch, 1, 1], by its name and layer; "lm_head" has the layer 0.
    Left out: 1."""

    @classmethod
    def of(cls, shape: LlamaShape, weights: Tensors, dtype: torch.dtype) -> Llama:
        """With the weights in this dtype; those that have it already are shared."""
        placed = {name: weight.to(dtype) for name, weight in weights.items() if name != "frequencies"}
        return cls(shape, {**placed, "frequencies": weights["frequencies"]})

    @property
    def dtype(self) -> torch.dtype:
        return self.weights["embedding"].dtype

    @property
    def head(self) -> torch.Tensor:
        """What the logits are made with, [vocab, hidden]."""
        return self.weights["embedding" if self.shape.tied else "lm_head"]

    def thinned(self, step: int) -> Llama:
        """Of whose logits only those of every so many tokens are made."""
        weights = {**self.weights, "lm_head": self.head[::step]}
        return replace(self, shape=replace(self.shape, tied=False), weights=weights)

    def logits(self, tokens: torch.Tensor, cache: Cache, context: int, last: int) -> torch.Tensor:
        """Of the `last` of these tokens, [batch, last, vocab]; tokens are int64 [batch, count].

        They follow the first `context` positions of the cache, where their keys and values are put.
        """
        x = self.weights["embedding"][tokens]
        angles = self._angles(context, tokens.shape[1])
        for layer in range(self.shape.layers):
            x = x + self._attention(
                self._norm(x, self.weights["attention_norm"][layer]), layer, cache, context, angles
            )
            x = x + self._mlp(self._norm(x, self.weights["mlp_norm"][layer]), layer)
        x = self._norm(x[:, -last:], self.weights["norm"])
        return self._scaled(functional.linear(x, self.head), "lm_head", 0)

    def _attention(
        self, x: torch.Tensor, layer: int, cache: Cache, context: int, angles: torch.Tensor
    ) -> torch.Tensor:
        batch, count, _ = x.shape
        q, k, v = (
            self._linear(x, name, layer).view(batch, count, -1, self.shape.head_dim).transpose(1, 2)
            for name in "qkv"
        )
        end = context + count
        cache.keys[layer, :, :, context:end] = turn(k, angles)
        cache.values[layer, :, :, context:end] = v
        keys, values = (part[layer, :, :, :end].to(self.dtype) for part in cache)
        is_seen = torch.ones(count, end, dtype=torch.bool, device=x.device).tril(context)
        seen = functional.scaled_dot_product_attention(
            turn(q, angles), keys, values, attn_mask=is_seen, enable_gqa=True
        )
        return self._linear(seen.transpose(1, 2).reshape(batch, count, -1), "o", layer)

    def _mlp(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        gate, up = (self._linear(x, name, layer) for name in ("gate", "up"))
        return self._linear(functional.silu(gate) * up, "down", layer)

    def _linear(self, x: torch.Tensor, name: str, layer: int) -> torch.Tensor:
        return self._scaled(functional.linear(x, self.weights[name][layer]), name, layer)

    def _scaled(self, x: torch.Tensor, name: str, layer: int) -> torch.Tensor:
        scale = self.scales.get((name, layer))
        return x if scale is None else x * scale.to(x.dtype)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * (wide.square().mean(-1, keepdim=True) + self.shape.eps).rsqrt()).to(x.dtype) * weight

    def _angles(self, context: int, count: int) -> torch.Tensor:
        """Radians, float64 [count, head_dim / 2]."""
        frequencies = self.weights["frequencies"].double()
        positions = torch.arange(context, context + count, device=frequencies.device, dtype=torch.float64)
        return torch.outer(positions, frequencies)


def turn(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The rotary embedding of [..., positions, head_dim], computed in float32 at the least."""
    wide = torch.promote_types(heads.dtype, torch.float32)
    cosine, sine = angles.cos().to(wide), angles.sin().to(wide)
    first, second = heads.to(wide).chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(heads.dtype)
