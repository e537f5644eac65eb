"""Puts operators of ops/ into the places of a model's own modules."""

from __future__ import annotations

import torch
from ops.norm_gemv import norm_gemv


class NormLinear(torch.nn.Module):
    """A linear layer together with the RMSNorm before it, for a single row by `norm_gemv`."""

    def __init__(self, norm: torch.nn.Module, linear: torch.nn.Module) -> None:
        super().__init__()
        self.norm, self.linear = norm, linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` is [..., k], not yet normed; returns [..., n]."""
        rows = x.shape[:-1].numel()
        if rows != 1:
            return self.linear(self.norm(x))
        found = norm_gemv(x.reshape(-1), self.norm.weight, self.norm.variance_epsilon, self.linear.weight)
        return found.reshape(*x.shape[:-1], -1)


def install_hooks(module: torch.nn.Module) -> None:
    """Change a causal language model in place: every norm moves into the linear layers that follow it."""
    for layer in module.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        attention.q_proj = NormLinear(layer.input_layernorm, attention.q_proj)
        attention.k_proj = NormLinear(layer.input_layernorm, attention.k_proj)
        attention.v_proj = NormLinear(layer.input_layernorm, attention.v_proj)
        mlp.gate_proj = NormLinear(layer.post_attention_layernorm, mlp.gate_proj)
        mlp.up_proj = NormLinear(layer.post_attention_layernorm, mlp.up_proj)
        layer.input_layernorm = torch.nn.Identity()
        layer.post_attention_layernorm = torch.nn.Identity()
    module.lm_head = NormLinear(module.model.norm, module.lm_head)
    module.model.norm = torch.nn.Identity()
