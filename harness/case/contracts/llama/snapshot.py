"""A Llama's weights as Hugging Face's transformers reads them: a folder with safetensors, or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.case.contracts.llama.model import LlamaShape
from hillclimb.harness.errors import UsageError

LAYER_NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
"""What transformers calls the weights of a layer."""


UNREADABLE = (OSError, ValueError, RuntimeError, ImportError, TypeError, KeyError)
"""What transformers raises for files that are damaged, or of a kind that it cannot read here."""

ROPE_TYPES = ("default", "linear", "llama3")
"""Rotary embeddings that do not depend on how long the text is."""


def read_snapshot(path: Path, shape: LlamaShape, dtype: torch.dtype, place: torch.device) -> Tensors:
    """The weights as LlamaShape.weight_shapes names them, in `dtype` on torch's device `place`, and `frequencies`.

    Nothing is fetched. Raises UsageError where it cannot be read, or is of another shape.
    """
    found, weights = read_any_snapshot(path, dtype, place)
    if found != shape:
        raise UsageError(
            f"{path} is {found}, and the contract's shape is {shape}; write the snapshot's there"
        )
    return weights


def read_any_snapshot(path: Path, dtype: torch.dtype, place: torch.device) -> tuple[LlamaShape, Tensors]:
    """As read_snapshot, of whatever shape it is."""
    model = _model(path, dtype)
    shape = shape_of(model.config)
    state, config = model.state_dict(), model.config
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if config.hidden_act != "silu" or rope not in ROPE_TYPES:
        raise UsageError(
            f"{path} has the activation {config.hidden_act} and the rotary embedding {rope}; sessions have silu, and "
            f"{', '.join(ROPE_TYPES)}"
        )
    weights = {"embedding": state["model.embed_tokens.weight"], "norm": state["model.norm.weight"]}
    for name, theirs in LAYER_NAMES.items():
        weights[name] = torch.stack([state[f"model.layers.{i}.{theirs}.weight"] for i in range(shape.layers)])
    if not shape.tied:
        weights["lm_head"] = state["lm_head.weight"]
    known = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    known |= {
        f"model.layers.{i}.{theirs}.weight" for i in range(shape.layers) for theirs in LAYER_NAMES.values()
    }
    if others := sorted(set(state) - known):
        raise UsageError(f"{path} has weights that a session has no place for, such as {others[0]}")
    rotary = model.model.rotary_emb
    placed = {name: weight.to(place, dtype).contiguous() for name, weight in weights.items()}
    return shape, {**placed, "frequencies": rotary.inv_freq.to(place, torch.float32)}


def shape_of(config: Any) -> LlamaShape:
    """As a configuration of transformers tells it. `theta` has its default: `frequencies` have what is made of it."""
    return LlamaShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        head_dim=config.head_dim,
        eps=float(f"{config.rms_norm_eps:.6g}"),  # GGUF has it in float32
        tied=config.tie_word_embeddings,
    )


def _model(path: Path, dtype: torch.dtype) -> Any:
    try:
        from huggingface_hub.errors import StrictDataclassError
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError:
        raise UsageError("transformers reads snapshots; install hillclimb[serving]") from None
    logging.disable_progress_bar()
    place: dict[str, Any] = {"local_files_only": True, "output_loading_info": True}
    folder = path
    if path.is_file():
        folder, place["gguf_file"] = path.parent, path.name
    try:
        model: Any
        model, loading = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, **place)
    except (*UNREADABLE, SafetensorError, StrictDataclassError) as error:
        raise UsageError(f"{path}: transformers cannot read it: {error}") from None
    if missing := sorted(loading.get("missing_keys", ())):
        raise UsageError(f"{path} lacks weights, such as {missing[0]}")
    if model.config.model_type != "llama":
        raise UsageError(f"{path} is a {model.config.model_type}, and a session's model is a llama")
    return model
