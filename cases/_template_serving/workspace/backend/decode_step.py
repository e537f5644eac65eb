"""A Llama's step without transformers: a loop over its layers, with a cache of a fixed size for each slot."""

from __future__ import annotations

import torch
from ops.norm_gemv import norm_gemv
from torch.nn import functional


class Layer:
    """Weights of one layer; those that read the same vector are one matrix."""

    def __init__(self, module: torch.nn.Module) -> None:
        attention, mlp = module.self_attn, module.mlp
        self.attention_norm, self.mlp_norm = module.input_layernorm, module.post_attention_layernorm
        self.qkv = join(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate_up = join(mlp.gate_proj, mlp.up_proj)
        self.o, self.down = attention.o_proj.weight, mlp.down_proj.weight


def join(*linears: torch.nn.Module) -> torch.Tensor:
    """One matrix of several, which become parts of it, so that no weight is held twice."""
    whole = torch.cat([linear.weight.detach() for linear in linears])
    start = 0
    for linear in linears:
        rows = linear.weight.shape[0]
        linear.weight = torch.nn.Parameter(whole[start : start + rows], requires_grad=False)
        start += rows
    return whole


def project(x: torch.Tensor, norm: torch.nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """RMSNorm of each row of `x` [rows, k], and its product with `weight` [n, k]: [rows, n]."""
    if len(x) == 1:
        return norm_gemv(x[0], norm.weight, norm.variance_epsilon, weight)[None]
    return functional.linear(norm(x), weight)


class Loop:
    """Steps of several sequences, one after another."""

    def __init__(self, module: torch.nn.Module, context: int, slots: int) -> None:
        """`module` is a LlamaForCausalLM of transformers; `context` and `slots` are the cache's sizes."""
        config, inner = module.config, module.model
        self._layers = [Layer(layer) for layer in inner.layers]
        self._embedding, self._norm, self._head = inner.embed_tokens, inner.norm, module.lm_head.weight
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._size = self._layers[0].qkv.shape[0] // (self._heads + 2 * self._kv_heads)
        like = {"device": self._head.device, "dtype": self._head.dtype}
        places = torch.arange(context, device=self._head.device)[None]
        self._cos, self._sin = (part[0] for part in inner.rotary_emb(torch.empty(0, **like), places))
        shape = (slots, len(self._layers), 2, self._kv_heads, context, self._size)
        self._keys_values = torch.zeros(shape, **like)

    @torch.inference_mode()
    def decode_step(self, slot: int, tokens: torch.Tensor, start: int) -> torch.Tensor:
        """Logits of what follows `tokens` [count], which stand at `start` and after it: float32 [vocabulary]."""
        x = self._embedding(tokens)
        for at, layer in enumerate(self._layers):
            mixed = self._attend(
                project(x, layer.attention_norm, layer.qkv), self._keys_values[slot, at], start
            )
            x = x + functional.linear(mixed, layer.o)
            gate, up = project(x, layer.mlp_norm, layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        return project(x[-1:], self._norm, self._head)[0].float()

    def _attend(self, qkv: torch.Tensor, cache: torch.Tensor, start: int) -> torch.Tensor:
        """`qkv` [count, (heads + 2 kv_heads) size]; adds to `cache` [2, kv_heads, context, size]. As wide as q."""
        count, end = len(qkv), start + len(qkv)
        parts = qkv.view(count, -1, self._size).transpose(0, 1)
        q, k, v = parts.split((self._heads, self._kv_heads, self._kv_heads))
        cache[0, :, start:end], cache[1, :, start:end] = self._turn(k, start), v
        found = functional.scaled_dot_product_attention(
            self._turn(q, start)[None],
            cache[None, 0, :, :end],
            cache[None, 1, :, :end],
            is_causal=count > 1,
            enable_gqa=True,
        )
        return found[0].transpose(0, 1).reshape(count, -1)

    def _turn(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """Rotary embedding of `x` [heads, count, size], whose first row stands at `start`."""
        end = start + x.shape[1]
        first, second = x.chunk(2, dim=-1)
        return x * self._cos[start:end] + torch.cat((-second, first), dim=-1) * self._sin[start:end]
