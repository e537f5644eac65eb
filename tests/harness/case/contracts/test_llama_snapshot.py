"""Snapshots as transformers writes them, and the model against transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.case.contracts.llama.model import Cache, Llama, LlamaShape
from hillclimb.harness.case.contracts.llama.snapshot import read_snapshot, shape_of
from hillclimb.harness.errors import UsageError
from tests.fakes.session import CONTRACT

transformers = pytest.importorskip("transformers")

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "initializer_range": 0.2,
}

SCALED = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}
"""The rotary embedding of Llama 3.2."""


def save(folder: Path, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **changes}))
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"rope_parameters": SCALED}])
def test_the_logits_are_those_of_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = save(tmp_path / "model", **changes)
    shape = shape_of(theirs.config)
    weights = read_snapshot(tmp_path / "model", shape, torch.float32, torch.device("cpu"))
    assert {name: tuple(w.shape) for name, w in weights.items()} == {
        **shape.weight_shapes(),
        "frequencies": (8,),
    }
    tokens = torch.randint(256, (2, 90))
    cache = Cache(*torch.zeros(2, 2, 2, 2, 90, 16))
    ours = Llama.of(shape, weights, torch.float32).logits(tokens, cache, 0, 90)
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs(tokens).logits, rtol=1e-4, atol=1e-4)


def test_a_contract_reads_the_models_weights(tmp_path: Path) -> None:
    theirs = save(tmp_path / "model")
    file = tmp_path / "contract.py"
    file.write_text(CONTRACT)
    contract = load_contract(file, model_path=tmp_path / "model")
    found = contract.parameters(torch.Generator().manual_seed(1))
    expected = theirs.model.embed_tokens.weight.detach()
    torch.testing.assert_close(found["embedding"], expected.bfloat16().float(), rtol=0, atol=0)
    assert found["frequencies"].dtype == torch.float32
    check_contract(contract.bound(found), file)


def test_a_snapshot_of_another_shape_is_refused_with_its_own(tmp_path: Path) -> None:
    theirs = save(tmp_path / "model")
    other = LlamaShape(layers=3, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, head_dim=16)
    with pytest.raises(UsageError, match="layers=2"):
        read_snapshot(tmp_path / "model", other, torch.float32, torch.device("cpu"))
    assert shape_of(theirs.config).layers == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"attention_bias": True}, "model.layers.0.self_attn"),
        ({"mlp_bias": True}, "model.layers.0.mlp"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "embedding dynamic",
        ),
    ],
)
def test_what_a_session_has_no_place_for_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    shape = shape_of(save(tmp_path / "model", **changes).config)
    with pytest.raises(UsageError, match=says):
        read_snapshot(tmp_path / "model", shape, torch.float32, torch.device("cpu"))


def test_a_snapshot_that_is_no_llama_is_refused(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    other = LlamaShape(layers=3, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, head_dim=16)
    with pytest.raises(UsageError, match="a gpt2"):
        read_snapshot(tmp_path / "model", other, torch.float32, torch.device("cpu"))


def test_a_folder_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    other = LlamaShape(layers=3, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, head_dim=16)
    with pytest.raises(UsageError, match="cannot read it"):
        read_snapshot(tmp_path, other, torch.float32, torch.device("cpu"))
