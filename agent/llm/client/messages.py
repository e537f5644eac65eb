"""What is said to a model, and what it says back."""

from __future__ import annotations

from typing import Literal

from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.records import Record


class Message(Record):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Reply(Record):
    """A whole reply, and what it took to get it."""

    text: str
    """Thoughts stripped; encodable, without NUL, free of the key."""
    usage: TokenUsage
    cost: float | None
    """US dollars, by the case's prices, else as the provider says; None where neither is known."""
    model: str
    """As the server names it."""
    finish: str
    seconds: float
    """All attempts and pauses."""
    attempts: int
    prompt_cut_to: int = 0
    """Tokens of the prompt that were read, where the server cut it without a word; 0 where it did not."""
    adjusted: tuple[str, ...] = ()
    """Parameters that this server does not take and that were left out or swapped, in words."""
