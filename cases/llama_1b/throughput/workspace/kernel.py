"""A Llama's session in plain torch: prompts and tokens of all sequences go through the layers together."""

from __future__ import annotations

import torch
from torch.nn import functional

EPSILON = 1e-5


class Session:
    """Called as kernel(prompt, shifts, keys, values, tokens, logits, context=context)."""

    def __init__(self, **weights: torch.Tensor) -> None:
        self._weights = weights
        self._layers = len(weights["q"])

    def __call__(
        self,
        prompt: torch.Tensor,
        shifts: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        *,
        context: int,
    ) -> None:
        read_now = prompt
        for step in range(tokens.shape[1]):
            found = self._read(read_now, keys, values, context)
            logits[:, step] = found
            tokens[:, step] = found.argmax(1)
            context += read_now.shape[1]
            read_now = ((tokens[:, step] + shifts[:, step]) % logits.shape[2])[:, None]

    def _read(
        self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: int
    ) -> torch.Tensor:
        """Logits of the last of these tokens [batch, count]: [batch, vocab]. The cache gets their keys and values."""
        x, end = self._weights["embedding"][tokens], context + tokens.shape[1]
        angles = torch.arange(context, end, device=x.device)[:, None] * self._weights["frequencies"]
        turns = angles.cos(), angles.sin()
        for layer in range(self._layers):
            cache = keys[layer, :, :, :end], values[layer, :, :, :end]
            x = x + self._attend(normed(x, self._weights["attention_norm"][layer]), layer, cache, turns)
            h = normed(x, self._weights["mlp_norm"][layer])
            gated = functional.silu(self._times("gate", layer, h)) * self._times("up", layer, h)
            x = x + self._times("down", layer, gated)
        return functional.linear(normed(x[:, -1], self._weights["norm"]), self._weights["embedding"])

    def _attend(
        self,
        x: torch.Tensor,
        layer: int,
        cache: tuple[torch.Tensor, torch.Tensor],
        turns: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """`cache` holds keys and values of all positions, [batch, kv_heads, end, head_dim]; the last are new."""
        (batch, count, _), (keys, values) = x.shape, cache
        end, head_dim = keys.shape[2:]
        q, k, v = (
            self._times(name, layer, x).view(batch, count, -1, head_dim).transpose(1, 2) for name in "qkv"
        )
        keys[:, :, end - count :], values[:, :, end - count :] = turned(k, *turns), v
        is_seen = torch.ones(count, end, dtype=torch.bool, device=x.device).tril(end - count)
        seen = functional.scaled_dot_product_attention(
            turned(q, *turns), keys, values, attn_mask=is_seen, enable_gqa=True
        )
        return self._times("o", layer, seen.transpose(1, 2).reshape(batch, count, -1))

    def _times(self, name: str, layer: int, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self._weights[name][layer])


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Divided by its root mean square, and weighted."""
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()).to(x.dtype) * weight


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The rotary embedding."""
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)
