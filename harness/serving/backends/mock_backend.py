"""A backend without a model: every answer follows from its prompt, and takes a set time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from hillclimb.harness.serving.backends.backend import ChatMessage

END = 256
"""The token that ends an answer; those below it are bytes."""

PEAK = 20.0
"""Logit of the byte that comes next, over those of all others."""

WORDS = ("tiles", "wait", "for", "bytes", "that", "come", "late", "and", "sums", "stay", "in", "registers")


class MockBackend:
    """Bytes are its tokens. A digest of the prompt chooses the words of an answer, which would end at a set length."""

    def __init__(
        self,
        model: str = "mock",
        *,
        slots: int = 8,
        context: int = 8192,
        answer_tokens: int = 64,
        prefill_seconds: float = 0.0,
        decode_seconds: float = 0.0,
    ) -> None:
        """`prefill_seconds` of each prompt and `decode_seconds` of each step, however many sequences it is for."""
        self.model, self.slots, self.context = model, slots, context
        self.vocabulary, self.end_tokens = END + 1, frozenset({END})
        self._answer_tokens = answer_tokens
        self._prefill_seconds, self._decode_seconds = prefill_seconds, decode_seconds
        self._answers: dict[int, _MockAnswer] = {}

    def encode(self, text: str) -> list[int]:
        """Its bytes in UTF-8."""
        return list(text.encode())

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Each message behind the name of its role."""
        turns = "".join(f"<{one.role}>{one.content}\n" for one in messages)
        return self.encode(f"{turns}<assistant>")

    def text(self, tokens: Sequence[int]) -> str:
        """The bytes as UTF-8; an end has no text."""
        return bytes(token for token in tokens if token != END).decode(errors="replace")

    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        """Logits of the first byte of the answer."""
        time.sleep(self._prefill_seconds)
        self._answers[slot] = _MockAnswer(_words(tokens))
        return self._logits(slot)

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        """Logits of the byte that follows, whatever was drawn before it but an end."""
        time.sleep(self._decode_seconds)
        for slot, token in last.items():
            self._answers[slot].has_ended |= token == END
        return torch.stack([self._logits(slot) for slot in last])

    def reset(self, slot: int) -> None:
        """Forget an answer."""
        self._answers.pop(slot, None)

    def _logits(self, slot: int) -> torch.Tensor:
        answer = self._answers[slot]
        logits = torch.zeros(END + 1)
        is_due = answer.tokens >= self._answer_tokens and not answer.has_ended
        logits[next(answer.text)] = PEAK / 2 if is_due else PEAK
        if is_due:
            logits[END] = PEAK
        answer.tokens += 1
        return logits


@dataclass
class _MockAnswer:
    """One that goes on after its end, for clients that ask for so many tokens whatever comes."""

    text: Iterator[int]
    tokens: int = 0
    has_ended: bool = False


def _words(prompt: Sequence[int]) -> Iterator[int]:
    """Bytes of words without end."""
    state = repr(list(prompt)).encode()
    while True:
        state = hashlib.sha256(state).digest()
        for byte in state:
            yield from WORDS[byte % len(WORDS)].encode() + b" "
