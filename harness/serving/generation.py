"""One answer that is asked for, and the tokens that it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Generation:
    """An answer that is asked for."""

    prompt: tuple[int, ...]
    most_tokens: int
    least_tokens: int = 0
    """No token that would end the answer is chosen before so many."""
    ignores_end: bool = False
    """An end token is one as any other then: the answer goes on to its full length."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these."""
    temperature: float = 1.0
    """0: always the likeliest token, the first of equally likely ones."""
    top_p: float = 1.0
    """The likeliest tokens that have so much probability together are drawn from."""
    seed: int | None = None
    """What draws follow from; None for others every time."""
    top_logprobs: int | None = None
    """How many of the likeliest tokens are told for each; None for no logarithms at all."""


class Likelihood(NamedTuple):
    """A token, and the logarithm of its probability before temperature and top_p."""

    token: int
    logprob: float


class Piece(NamedTuple):
    """A token of an answer, and the text that it completes: "" amid a character or what may become a stop."""

    chosen: Likelihood
    likeliest: tuple[Likelihood, ...]
    text: str


class Finish(NamedTuple):
    """How an answer ended, with text that was still held back."""

    reason: FinishReason
    text: str = ""


class Failure(NamedTuple):
    """No more is made of it."""

    reason: str


AnswerEvent = Piece | Finish | Failure
