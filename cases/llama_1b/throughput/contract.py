"""Decode and prefill of a Llama of 1.24 thousand million weights, 8 and 32 sequences at a time, in bfloat16."""

from __future__ import annotations

from typing import ClassVar

from hillclimb.harness.case.contracts.llama.model import LlamaShape
from hillclimb.harness.case.contracts.llama.session import LlamaSession


class Contract(LlamaSession):
    shape = LlamaShape(
        layers=16,
        hidden=2048,
        heads=32,
        kv_heads=8,
        ffn=8192,
        vocab=128256,
        head_dim=64,
        theta=500_000.0,
    )
    problems: ClassVar = {
        "decode_8": {"batch": 8, "context": 128, "prompt": 1, "tokens": 16},
        "decode_32": {"batch": 32, "context": 128, "prompt": 1, "tokens": 8},
        "decode_1": {"batch": 1, "context": 128, "prompt": 1, "tokens": 32},
        "prefill": {"batch": 8, "context": 0, "prompt": 64, "tokens": 1},
        "chat": {"batch": 3, "context": 5, "prompt": 37, "tokens": 4},
    }
