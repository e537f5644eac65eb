"""A language model of a snapshot on this machine, run by Hugging Face's transformers."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, StaticCache
from transformers.utils import logging

from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.backends.backend import ChatMessage, Mode, ModelDtype


class TransformersBackend:
    """Sequences have a cache each, and are decoded one after another: what transformers does without a scheduler."""

    def __init__(
        self,
        snapshot: Path,
        *,
        model: str | None = None,
        mode: Mode = "eager",
        device: str = "cpu",
        dtype: ModelDtype = "float32",
        context: int | None = None,
        slots: int = 1,
    ) -> None:
        """`snapshot` is a folder with safetensors, or a GGUF file, which is read into `dtype`.

        Nothing is fetched. Raises UsageError for a snapshot that cannot be read.
        """
        logging.disable_progress_bar()
        # cuDNN's attention plans anew for every length: 40 ms a token on an H200
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.model, self.slots = model or snapshot.name.removesuffix(".gguf"), slots
        place: dict[str, Any] = {"local_files_only": True}
        if snapshot.is_file():
            snapshot, place["gguf_file"] = snapshot.parent, snapshot.name
        if not snapshot.is_dir():
            raise UsageError(f"{snapshot} is no snapshot; give a folder with config.json, or a GGUF file")
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(snapshot), **place)
            whole: Any = AutoModelForCausalLM.from_pretrained(
                str(snapshot), dtype=getattr(torch, dtype), **place
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"{snapshot}: transformers cannot read it: {error}") from None
        self.module = whole.to(device).eval()
        self._mode, self._device = mode, device
        config = self.module.config
        most = int(config.max_position_embeddings)
        if context is not None and context > most:
            raise UsageError(
                f"the model has a context of {most} tokens, not {context}; give --context {most}"
            )
        self.context, self.vocabulary = context or most, int(config.vocab_size)
        self.end_tokens = frozenset(_numbers(self.module.generation_config.eos_token_id))
        self._step: Any = torch.compile(self.module) if mode == "compiled" else self.module
        self._caches: dict[int, Any] = {}
        self._spelling = threading.Lock()
        """The tokenizer is for one thread at a time."""
        names = inspect.signature(self.module.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # the older name

    def encode(self, text: str) -> list[int]:
        """With what the tokenizer puts before a text."""
        with self._spelling:
            return list(self._tokenizer(text).input_ids)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """By the model's template. Raises ValueError where it has none, or does not take the messages."""
        if not self._tokenizer.chat_template:
            raise ValueError("the model has no chat template; ask for /v1/completions")
        turns = [{"role": one.role, "content": one.content} for one in messages]
        try:
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the model's chat template refuses the messages: {error}") from error
        with self._spelling:
            return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def text(self, tokens: Sequence[int]) -> str:
        """Without special tokens."""
        with self._spelling:
            found = self._tokenizer.decode(
                list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        return str(found)

    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        """All tokens at once, without a compiled step."""
        self._caches[slot] = self._cache()
        return self._run(self.module, slot, tokens)

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        """One sequence after another."""
        return torch.stack([self._run(self._step, slot, [token]) for slot, token in last.items()])

    def reset(self, slot: int) -> None:
        """Drop its cache."""
        self._caches.pop(slot, None)

    def release(self) -> None:
        """Let go of the weights: from here on it knows texts and tokens only."""
        del self.module, self._step
        self._caches.clear()

    def _cache(self) -> Any:
        if self._mode == "eager":
            return DynamicCache(config=self.module.config)
        return StaticCache(config=self.module.config, max_cache_len=self.context)

    @torch.inference_mode()
    def _run(self, step: Any, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        inputs = torch.tensor([list(tokens)], device=self._device)
        cache = {self._cache_name: self._caches[slot]}
        found = step(input_ids=inputs, use_cache=True, logits_to_keep=1, **cache)
        logits: torch.Tensor = found.logits[0, -1].float()
        return logits


def _numbers(value: int | Iterable[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
