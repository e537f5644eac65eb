"""The model in plain torch, for any number of sequences and tokens."""

from __future__ import annotations

import torch
from torch.nn import functional

EPSILON = 1e-5


def read(
    weights: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    context: int,
) -> torch.Tensor:
    """Logits of the last of these tokens, [batch, vocab]; their keys and values are put into the cache."""
    batch, count = tokens.shape
    head_dim, end = keys.shape[4], context + tokens.shape[1]
    x = weights["embedding"][tokens]
    positions = torch.arange(context, end, device=x.device)
    angles = positions[:, None] * weights["frequencies"]
    cosine, sine = angles.cos(), angles.sin()
    is_seen = torch.ones(count, end, dtype=torch.bool, device=x.device).tril(context)
    for layer in range(len(weights["q"])):
        h = normed(x, weights["attention_norm"][layer])
        q, k, v = (
            functional.linear(h, weights[name][layer]).view(batch, count, -1, head_dim).transpose(1, 2)
            for name in "qkv"
        )
        keys[layer, :, :, context:end] = turned(k, cosine, sine)
        values[layer, :, :, context:end] = v
        seen = functional.scaled_dot_product_attention(
            turned(q, cosine, sine),
            keys[layer, :, :, :end],
            values[layer, :, :, :end],
            attn_mask=is_seen,
            enable_gqa=True,
        )
        x = x + functional.linear(seen.transpose(1, 2).reshape(batch, count, -1), weights["o"][layer])
        h = normed(x, weights["mlp_norm"][layer])
        gate, up = (functional.linear(h, weights[name][layer]) for name in ("gate", "up"))
        x = x + functional.linear(functional.silu(gate) * up, weights["down"][layer])
    return functional.linear(normed(x[:, -1], weights["norm"]), weights["embedding"])


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()).to(x.dtype) * weight


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The rotary embedding."""
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)
