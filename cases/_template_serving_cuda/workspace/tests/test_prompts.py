"""Prompts that a CUDA graph reads, held to those that are read without."""

from __future__ import annotations

import pytest
import torch
from backend import prompts
from backend.environment import DEVICE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_graph_reads_what_it_is_given(monkeypatch):
    monkeypatch.setattr(prompts, "MOST_LENGTHS", 2)
    weight = torch.randn(300, 16, device=DEVICE)
    found = torch.zeros(16, device=DEVICE)
    calls = []

    def read(tokens):
        calls.append(tokens.shape[1])
        found.copy_(weight[tokens[0]].cumsum(0).tanh()[-1])

    reader = prompts.PromptReader(read)
    for count in (3, 3, 3, 7, 7, 3, 5, 3, 3, 3):
        tokens = torch.randint(300, (1, count), device=DEVICE)
        reader(tokens)
        assert torch.equal(found, weight[tokens[0]].cumsum(0).tanh()[-1])
    assert calls == [3, 3, 7, 7, 5, 3, 3]
