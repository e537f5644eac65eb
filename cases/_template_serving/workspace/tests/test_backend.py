"""The loop and the hooks, held to transformers' own modules on a model with random weights."""

from __future__ import annotations

import copy

import pytest
import torch
from backend.decode_step import Loop
from backend.environment import DEVICE, DTYPE
from backend.hooks import install_hooks
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU")

TOKENS = [5, 17, 250, 3, 99, 42, 7]
ACCEPTED = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}[DTYPE]
"""Of a logit, in standard deviations of all logits."""


@pytest.fixture(params=[1, 2, 4], ids=lambda heads: f"{heads} heads in the cache")
def model(request):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=request.param,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).to(DEVICE, getattr(torch, DTYPE)).eval()


@torch.inference_mode()
def logits_of(model, tokens):
    return model(torch.tensor([tokens], device=DEVICE)).logits[0, -1].float()


def read(loop, slot, tokens, start):
    return loop.decode_step(slot, torch.tensor(tokens, device=DEVICE), start)


def gap(mine, other):
    return float((mine - other).abs().max() / other.std())


def test_the_loop_reads_and_makes_tokens(model):
    stock = copy.deepcopy(model)
    loop = Loop(model, context=32, slots=2)
    for slot in (1, 0, 1):
        assert gap(read(loop, slot, TOKENS[:4], 0), logits_of(stock, TOKENS[:4])) < ACCEPTED
        for at in (4, 5, 6):
            found = read(loop, slot, TOKENS[at : at + 1], at)
            assert gap(found, logits_of(stock, TOKENS[: at + 1])) < ACCEPTED


def test_what_became_part_of_one_matrix_is_what_it_was(model):
    before = logits_of(model, TOKENS)
    Loop(model, context=32, slots=1)
    assert torch.equal(before, logits_of(model, TOKENS))


def test_hooks_change_nothing_but_who_computes(model):
    stock = copy.deepcopy(model)
    install_hooks(model)
    for count in (1, 4):
        assert gap(logits_of(model, TOKENS[:count]), logits_of(stock, TOKENS[:count])) < ACCEPTED
