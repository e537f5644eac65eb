"""A session: a tiny Llama in plain NumPy, small enough that a call takes milliseconds."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.cases import write_case

CONTRACT = """
import torch
from hillclimb.harness.case.contracts.llama.model import LlamaShape
from hillclimb.harness.case.contracts.llama.session import LlamaSession

class Contract(LlamaSession):
    shape = LlamaShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, head_dim=16)
    dtype = torch.float32
    audited_share = 1.0
    problems = {
        "read": {"batch": 2, "context": 0, "prompt": 9, "tokens": 1},
        "few": {"batch": 2, "context": 5, "prompt": 2, "tokens": 3},
        "decode": {"batch": 2, "context": 24, "prompt": 1, "tokens": 8},
        "long": {"batch": 2, "context": 24, "prompt": 1, "tokens": 32},
    }
"""

SETTINGS = """
schema: 1
surface: session
summary: a tiny Llama makes tokens
objective: {minimum_effect: 0.02}
budgets: {prepare_seconds: 20, call_seconds: 5, memory_mib: 1024}
policy: {imports: [numpy, os, yaml], library_calls: true}
duel: {segment_ms: 30, screen_blocks: 6, pair_blocks: 2, max_pairs: 10, report_pairs: 3}
gate: {seeds: 1}
"""

SUITE = "problems: [decode]\ndistribution: normal\n"

KERNEL = """
import numpy as np

EPS = 1e-5


class Session:
    def __init__(self, **weights):
        self.w = {name: weight.copy() for name, weight in weights.items()}
        # PREPARED

    def __call__(self, prompt, shifts, keys, values, tokens, logits, *, context):
        read = prompt
        for step in range(tokens.shape[1]):
            found = self.step(read, keys, values, context)
            # FOUND
            logits[:, step] = found
            tokens[:, step] = found.argmax(1)
            context += read.shape[1]
            read = ((tokens[:, step] + shifts[:, step]) % logits.shape[2])[:, None]

    def step(self, read, keys, values, context):
        w = self.w
        batch, count = read.shape
        heads, dim = keys.shape[2], keys.shape[4]
        x = w["embedding"][read]
        angles = np.arange(context, context + count)[:, None] * w["frequencies"]
        cos, sin = np.cos(angles, dtype=np.float32), np.sin(angles, dtype=np.float32)
        end = context + count
        hidden = np.arange(end) > np.arange(context, end)[:, None]
        for layer in range(len(w["q"])):
            # LAYER
            h = norm(x, w["attention_norm"][layer])
            q, k, v = ((h @ w[name][layer].T).reshape(batch, count, -1, dim).transpose(0, 2, 1, 3) for name in "qkv")
            keys[layer, :, :, context:end], values[layer, :, :, context:end] = turn(k, cos, sin), v
            q = turn(q, cos, sin).reshape(batch, heads, -1, count, dim)
            scores = q @ keys[layer, :, :, None, :end].swapaxes(-1, -2) / np.float32(dim**0.5)
            scores[..., hidden] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            seen = scores / scores.sum(-1, keepdims=True) @ values[layer, :, :, None, :end]
            seen = seen.reshape(batch, -1, count, dim).transpose(0, 2, 1, 3).reshape(batch, count, -1)
            x = x + seen @ w["o"][layer].T
            h = norm(x, w["mlp_norm"][layer])
            gate = h @ w["gate"][layer].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"][layer].T)) @ w["down"][layer].T
        return norm(x[:, -1], w["norm"]) @ w["embedding"].T


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPS)) * weight


def turn(x, cos, sin):
    first, second = np.split(x, 2, -1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
"""

SLOW = KERNEL.replace(
    "# LAYER",
    """for _ in range(60):
                norm(x @ w['o'][layer] @ w['gate'][layer].T @ w['up'][layer], w['norm'])""",
)
"""It does more, for nothing."""


def write_session(root: Path, kernel: str = KERNEL) -> Path:
    """The case folder, for a CPU."""
    folder = write_case(root, kernel, SETTINGS + 'entry: "kernel.py:Session"\n')
    (folder / "contract.py").write_text(CONTRACT)
    (folder / "benchmarks" / "main.yaml").write_text(SUITE)
    return folder


CUDA_SETTINGS = """
schema: 1
surface: session
summary: a Llama makes tokens on a GPU
device: cuda
objective: {minimum_effect: 0.02}
budgets: {prepare_seconds: 120, call_seconds: 60, memory_mib: 8192}
policy: {imports: [torch, triton], library_calls: true, weight_caches: true}
gate: {seeds: 1}
"""

TORCH_KERNEL = """
import torch
from torch.nn import functional as F

torch.set_num_threads(1)  # others would spin a while after a call


class Session:
    def __init__(self, **weights):
        self.w = dict(weights)
        # PREPARED

    def __call__(self, prompt, shifts, keys, values, tokens, logits, *, context):
        read = prompt
        for step in range(tokens.shape[1]):
            found = self.step(read, keys, values, context)
            # FOUND
            logits[:, step] = found
            tokens[:, step] = found.argmax(1)
            context += read.shape[1]
            read = ((tokens[:, step] + shifts[:, step]) % logits.shape[2])[:, None]

    def step(self, read, keys, values, context):
        w = self.w
        batch, count = read.shape
        dim = keys.shape[4]
        x = w["embedding"][read]
        angles = torch.arange(context, context + count, device=x.device)[:, None] * w["frequencies"]
        cos, sin = angles.cos(), angles.sin()
        end = context + count
        seen = torch.ones(count, end, dtype=torch.bool, device=x.device).tril(context)
        for layer in range(len(w["q"])):
            # LAYER
            h = norm(x, w["attention_norm"][layer])
            q, k, v = (F.linear(h, w[name][layer]).view(batch, count, -1, dim).transpose(1, 2) for name in "qkv")
            keys[layer, :, :, context:end], values[layer, :, :, context:end] = turn(k, cos, sin), v
            found = F.scaled_dot_product_attention(
                turn(q, cos, sin), keys[layer, :, :, :end], values[layer, :, :, :end], attn_mask=seen, enable_gqa=True
            )
            x = x + F.linear(found.transpose(1, 2).reshape(batch, count, -1), w["o"][layer])
            h = norm(x, w["mlp_norm"][layer])
            gated = F.silu(F.linear(h, w["gate"][layer])) * F.linear(h, w["up"][layer])
            x = x + F.linear(gated, w["down"][layer])
        return F.linear(norm(x[:, -1], w["norm"]), w["embedding"])


def norm(x, weight):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype) * weight


def turn(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
"""


def write_session_for_gpu(root: Path, kernel: str = TORCH_KERNEL) -> Path:
    """The same for a GPU, in bfloat16."""
    folder = write_case(root, kernel, CUDA_SETTINGS + 'entry: "kernel.py:Session"\n')
    (folder / "contract.py").write_text(CONTRACT.replace("    dtype = torch.float32\n", ""))
    (folder / "benchmarks" / "main.yaml").write_text(SUITE)
    return folder
