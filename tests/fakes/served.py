"""A case whose surface is openai_http: a workspace that serves a snapshot by transformers, and is slow on purpose."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """
schema: 1
surface: openai_http
summary: a tiny Llama is served
model: tiny
model_path: {model_path}
entry: backend.py:create_backend
serving: {{backend: "backend.py:create_backend", context: 128, slots: 2}}
objective: {{metric: tokens_per_second, direction: higher, minimum_effect: 0.1, suite: single}}
guardrails:
  - {{suite: single, metric: ttft, max_slowdown: 0.5}}
  - {{suite: both, max_slowdown: 0.5}}
budgets: {{prepare_seconds: 120, call_seconds: 20, memory_mib: 4096}}
policy: {{imports: [hillclimb, torch, os, time, yaml], library_calls: true}}
duel: {{screen_blocks: 6, pair_blocks: 1, max_pairs: 8, report_pairs: 3}}
"""

BACKEND = """
import os
import time

import torch

from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend

PREFILL = float(os.environ.get("PREFILL_SLEEP", 0))
DECODE = float(os.environ.get("DECODE_SLEEP", 0))


class Backend(TransformersBackend):
    def prefill(self, slot, tokens):
        time.sleep(PREFILL)
        return super().prefill(slot, tokens)

    def decode(self, last):
        time.sleep(DECODE)
        return super().decode(last)


def create_backend(model):
    torch.set_num_threads(1)
    backend = Backend(model.path, model=model.name, context=model.context, slots=model.slots)
    # MADE
    return backend
"""


def write_served_case(root: Path, model_path: Path) -> Path:
    """The case's folder, `cases/test/served` below `root`."""
    folder = root / "cases" / "test" / "served"
    for place in ("benchmarks", "workspace"):
        (folder / place).mkdir(parents=True)
    (folder / "case.yaml").write_text(SETTINGS.format(model_path=model_path))
    (folder / "program.md").write_text("Make it faster.\n")
    (folder / "benchmarks" / "single.yaml").write_text("prompt_tokens: 8\nanswer_tokens: 16\n")
    (folder / "benchmarks" / "both.yaml").write_text(
        "prompt_tokens: 8\nanswer_tokens: 8\nconcurrency: 2\nrequests: 2\n"
    )
    (folder / "workspace" / "backend.py").write_text(BACKEND)
    return folder
