#!/usr/bin/env python3
"""Make a Llama of a million parameters, with random weights and a byte-level BPE tokenizer, to try servers on.

The tokenizer is learnt from the text of this project's licence, and nothing is fetched. So a seed gives the same files
wherever torch and transformers are the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

MOST_WORDS = 1024
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
ROOT = Path(__file__).resolve().parents[1]


def make_tokenizer(folder: Path) -> int:
    """How many tokens it has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MOST_WORDS,
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where it is written; it must not be there yet")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    options = parser.parse_args()
    try:
        options.folder.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{options.folder} is there already; choose another folder, or remove it")
    count = make_model(options.folder, make_tokenizer(options.folder), options.seed)
    print(f"{options.folder}: a Llama of {count / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
