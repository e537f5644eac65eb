"""The weights of a small model that people use, read from GGUF."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from openai import OpenAI

from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend
from tests.harness.serving.conftest import served
from tests.harness.serving.environments import install_into


@pytest.mark.slow(120)
def test_smollm2_knows_the_capital_of_france(tmp_path: Path) -> None:
    install_into(tmp_path, "smollm2")
    (weights,) = tmp_path.rglob("*.gguf")
    backend = TransformersBackend(weights, model="smollm2", mode="static", context=512)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    with served(backend) as client:
        whole = client.chat.completions.create(
            model="smollm2",
            messages=asked,
            max_tokens=32,
            temperature=0,  # type: ignore[arg-type]
        )
        assert whole.choices[0].message.content == "The capital of France is Paris."
        assert whole.choices[0].finish_reason == "stop"
        assert streamed(client, asked) == whole.choices[0].message.content
    steps_agree_with_a_prefill(backend)


def streamed(client: OpenAI, asked: list[dict[str, str]]) -> str:
    parts = client.chat.completions.create(
        model="smollm2",
        messages=asked,
        max_tokens=32,
        temperature=0,
        stream=True,  # type: ignore[call-overload]
    )
    return "".join(part.choices[0].delta.content or "" for part in parts)


def steps_agree_with_a_prefill(backend: TransformersBackend) -> None:
    tokens = backend.encode("Matrix products are sums of products, and a kernel is what computes them.")
    stepped = [backend.prefill(0, tokens[:3])]
    stepped += [backend.decode({0: token})[0] for token in tokens[3:]]
    backend.reset(0)
    whole = backend.prefill(0, tokens)
    backend.reset(0)
    torch.testing.assert_close(stepped[-1], whole, rtol=1e-3, atol=1e-3)
