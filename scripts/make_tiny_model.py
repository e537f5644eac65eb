#!/usr/bin/env python3
"""Make a Llama with random weights and a byte-level BPE tokenizer, to try servers on: of a million parameters, or as
large as the model of a session's case.

The tokenizer is learnt from the text of this project's licence, and nothing is fetched. So a seed gives the same files
wherever torch, transformers and the device are the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.harness.errors import HillclimbError

if TYPE_CHECKING:
    from hillclimb.harness.case.contracts.llama.session import LlamaSession

EXAMPLE = "llama_1b/single_stream"
MOST_WORDS = 1024
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
LEAST_WORDS = 256 + len(SPECIAL)
"""A token for each byte, and the special ones."""

ROOT = Path(__file__).resolve().parents[1]


def make_tokenizer(folder: Path, most: int = MOST_WORDS) -> int:
    """How many tokens it has: `most`, if the text has so many."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=most,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(ROOT / "LICENSE")], trainer)
    begin, end, *_ = SPECIAL
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=begin,
        eos_token=end,
        additional_special_tokens=list(SPECIAL[2:]),
        clean_up_tokenization_spaces=False,
    )
    whole.chat_template = CHAT_TEMPLATE
    whole.save_pretrained(folder)
    return len(whole)


def make_model(folder: Path, vocabulary: int, seed: int) -> int:
    """Random weights of a Llama; how many there are."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,  # so that what comes next is not the same for every prompt
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return sum(one.numel() for one in model.parameters())


def session_of(case: str) -> LlamaSession:
    """The contract of a session's case. Raises HillclimbError where there is none."""
    from hillclimb.harness.case.case import Case, find_case
    from hillclimb.harness.case.contracts.llama.session import LlamaSession
    from hillclimb.harness.errors import UsageError
    from hillclimb.harness.sources.source_file import load_source

    file = Case(find_case(case)).contract_file
    contract = load_source(file)["Contract"]() if file.is_file() else None
    if not isinstance(contract, LlamaSession):
        raise UsageError(f"{case} has no contract of a session; name a case that has, such as {EXAMPLE}")
    if contract.shape.vocab < LEAST_WORDS:
        raise UsageError(
            f"{case} has a vocabulary of {contract.shape.vocab}; the tokenizer needs {LEAST_WORDS} tokens, or more"
        )
    return contract


def make_model_like(contract: LlamaSession, folder: Path, seed: int, device: str) -> int:
    """A model of a session's sizes, with weights as its judge draws them; how many there are.

    Tokens that the tokenizer does not have are spelt as nothing.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from hillclimb.harness.case.contracts.llama.model import seeded_weights
    from hillclimb.harness.case.contracts.llama.snapshot import LAYER_NAMES

    shape = contract.shape
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        max_position_embeddings=8192,
        tie_word_embeddings=shape.tied,
        bos_token_id=0,
        eos_token_id=1,
    )
    generator = torch.Generator(device).manual_seed(seed)
    weights = seeded_weights(shape, contract.precision, generator)
    state = {"model.embed_tokens.weight": weights["embedding"], "model.norm.weight": weights["norm"]}
    for name, theirs in LAYER_NAMES.items():
        for layer, weight in enumerate(weights[name]):
            state[f"model.layers.{layer}.{theirs}.weight"] = weight
    state["lm_head.weight"] = weights["embedding" if shape.tied else "lm_head"]
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(contract.precision)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    return sum(one.numel() for one in model.parameters())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where it is written; it must not be there yet")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    parser.add_argument(
        "--like",
        metavar="CASE",
        help=f"a session's case, such as {EXAMPLE}, for its sizes and dtype",
    )
    parser.add_argument(
        "--device", default="cpu", help="where weights like a case's are drawn (default: cpu)"
    )
    options = parser.parse_args()
    try:
        contract = session_of(options.like) if options.like else None
        options.folder.mkdir(parents=True)
    except HillclimbError as error:
        parser.error(str(error))
    except FileExistsError:
        parser.error(f"{options.folder} is there already; choose another folder, or remove it")
    most = MOST_WORDS if contract is None else min(MOST_WORDS, contract.shape.vocab)
    words = make_tokenizer(options.folder, most)
    if contract is not None:
        count = make_model_like(contract, options.folder, options.seed, options.device)
    else:
        count = make_model(options.folder, words, options.seed)
    print(f"{options.folder}: a Llama of {count / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
