"""What a model is to the server that answers for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch

Mode = Literal["eager", "static", "compiled"]
"""How a model's step is run: with a cache of keys and values that grows, with one of a fixed size, or with that and the
step compiled by torch."""

ModelDtype = Literal["float32", "bfloat16", "float16"]
"""Of weights."""


class ServedModel(NamedTuple):
    """What a case's own backend is told of the model."""

    name: str
    path: Path | None
    """Its files; None where the case names none."""
    context: int | None
    """Tokens of a prompt and its answer, at the most; None for what the backend takes."""
    slots: int
    """Sequences at once."""


class ChatMessage(NamedTuple):
    """One of a conversation."""

    role: str
    content: str


class Backend(Protocol):
    """A model with a tokenizer.

    One thread calls prefill, decode and reset, one call at a time. Others call encode, encode_chat and text meanwhile.
    Sequences live in slots, counted from 0. Logits are float32, on any device.
    """

    model: str
    """The name that clients ask for."""
    context: int
    """Tokens of a prompt and its answer, at the most."""
    vocabulary: int
    """Tokens are counted from 0 to below it."""
    slots: int
    """Sequences at once."""
    end_tokens: frozenset[int]
    """Any of them ends an answer."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text as it is."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Tokens of a conversation, up to where the answer begins. Raises ValueError for one that the model lacks."""

    def text(self, tokens: Sequence[int]) -> str:
        """What they spell, without those that only mark something.

        Bytes that end amid a character come as U+FFFD. What is spelt does not depend on tokens that follow.
        """

    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        """Begin a sequence in a free slot: logits of the token that comes next, [vocabulary]."""

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        """Add each slot's token to its sequence: logits of what comes next, [slots given, vocabulary], in order."""

    def reset(self, slot: int) -> None:
        """Forget the sequence of a slot, which is free then; also where prefill or decode failed."""
