"""Decode and prefill of a Llama of 8.03 thousand million weights, one sequence at a time, in bfloat16."""

from __future__ import annotations

from typing import ClassVar

from hillclimb.harness.case.contracts.llama.model import LlamaShape
from hillclimb.harness.case.contracts.llama.session import LlamaSession


class Contract(LlamaSession):
    shape = LlamaShape(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocab=128256,
        head_dim=128,
        theta=500_000.0,
        tied=False,
    )
    problems: ClassVar = {
        "decode": {"batch": 1, "context": 128, "prompt": 1, "tokens": 64},
        "decode_2048": {"batch": 1, "context": 2048, "prompt": 1, "tokens": 16},
        "prefill": {"batch": 1, "context": 0, "prompt": 512, "tokens": 1},
        "chat": {"batch": 1, "context": 0, "prompt": 37, "tokens": 9},
        "two": {"batch": 2, "context": 5, "prompt": 3, "tokens": 4},
    }
