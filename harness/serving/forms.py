"""Answers in the forms of OpenAI's API, built of the types of its own SDK."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openai import BaseModel as SdkModel
from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionTokenLogprob,
)
from openai.types.chat.chat_completion import Choice as ChatChoice
from openai.types.chat.chat_completion import ChoiceLogprobs
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from openai.types.chat.chat_completion_chunk import ChoiceLogprobs as ChunkLogprobs
from openai.types.chat.chat_completion_token_logprob import TopLogprob
from openai.types.completion_choice import Logprobs

from hillclimb.harness.serving.generation import FinishReason, Likelihood, Piece
from hillclimb.harness.serving.text_stream import UNFINISHED

Spell = Callable[[Sequence[int]], str]


@dataclass
class Whole:
    """An answer that is put together."""

    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    reason: FinishReason | None = None


@dataclass(frozen=True)
class Counts:
    """Of tokens."""

    prompt: int
    answer: int

    @property
    def usage(self) -> CompletionUsage:
        """In the API's form."""
        return CompletionUsage(
            prompt_tokens=self.prompt, completion_tokens=self.answer, total_tokens=self.prompt + self.answer
        )


@dataclass(frozen=True)
class StreamPart:
    """What is new of an answer."""

    index: int
    text: str
    pieces: Sequence[Piece]
    reason: FinishReason | None
    """Where it ends."""
    counts: Counts | None
    """Where they come with every chunk."""


class Form(Protocol):
    """Of the answers to one request, each as JSON."""

    def whole(self, answers: Sequence[Whole], counts: Counts) -> str:
        """All of them at once."""

    def begin(self, index: int) -> str | None:
        """What a stream says before the first piece of an answer; None for nothing."""

    def part(self, part: StreamPart) -> str:
        """A chunk of a stream."""

    def usage(self, counts: Counts) -> str:
        """The last chunk of a stream, where it is asked for."""


class _Form:
    """What both forms share."""

    def __init__(self, prefix: str, model: str, spell: Spell, *, has_logprobs: bool) -> None:
        self._id, self._created = f"{prefix}-{uuid.uuid4().hex}", int(time.time())
        self._model, self._spell, self._has_logprobs = model, spell, has_logprobs

    def _word(self, token: int) -> tuple[str, list[int] | None]:
        """A token's text, and its bytes where that is whole characters."""
        text = self._spell([token])
        return text, None if UNFINISHED in text else list(text.encode())


class ChatForm(_Form):
    """Of /v1/chat/completions."""

    def __init__(self, model: str, spell: Spell, *, has_logprobs: bool) -> None:
        super().__init__("chatcmpl", model, spell, has_logprobs=has_logprobs)

    def whole(self, answers: Sequence[Whole], counts: Counts) -> str:
        """A chat.completion."""
        choices = [
            ChatChoice(
                index=index,
                finish_reason=one.reason or "stop",
                message=ChatCompletionMessage(role="assistant", content=one.text),
                logprobs=ChoiceLogprobs(content=self._logprobs(one.pieces)) if self._has_logprobs else None,
            )
            for index, one in enumerate(answers)
        ]
        found = ChatCompletion(
            id=self._id,
            choices=choices,
            created=self._created,
            model=self._model,
            object="chat.completion",
            usage=counts.usage,
        )
        return str(found.model_dump_json(exclude_unset=True))

    def begin(self, index: int) -> str | None:
        """The role."""
        return self._chunk([ChunkChoice(index=index, delta=ChoiceDelta(role="assistant", content=""))], None)

    def part(self, part: StreamPart) -> str:
        """A chat.completion.chunk."""
        delta = ChoiceDelta(content=part.text) if part.text or part.reason is None else ChoiceDelta()
        told = ChunkLogprobs(content=self._logprobs(part.pieces)) if self._has_logprobs else None
        choice = ChunkChoice(index=part.index, delta=delta, finish_reason=part.reason, logprobs=told)
        return self._chunk([choice], part.counts)

    def usage(self, counts: Counts) -> str:
        """Without a choice."""
        return self._chunk([], counts)

    def _chunk(self, choices: list[ChunkChoice], counts: Counts | None) -> str:
        found = ChatCompletionChunk(
            id=self._id,
            choices=choices,
            created=self._created,
            model=self._model,
            object="chat.completion.chunk",
            usage=counts.usage if counts else None,
        )
        return str(found.model_dump_json(exclude_unset=True))

    def _logprobs(self, pieces: Sequence[Piece]) -> list[ChatCompletionTokenLogprob]:
        found = []
        for piece in pieces:
            text, of_bytes = self._word(piece.chosen.token)
            likeliest = [self._top(one) for one in piece.likeliest]
            found.append(
                ChatCompletionTokenLogprob(
                    token=text, bytes=of_bytes, logprob=piece.chosen.logprob, top_logprobs=likeliest
                )
            )
        return found

    def _top(self, one: Likelihood) -> TopLogprob:
        text, of_bytes = self._word(one.token)
        return TopLogprob(token=text, bytes=of_bytes, logprob=one.logprob)


class TextForm(_Form):
    """Of /v1/completions."""

    def __init__(self, model: str, spell: Spell, *, has_logprobs: bool) -> None:
        super().__init__("cmpl", model, spell, has_logprobs=has_logprobs)
        self._offsets: dict[int, int] = {}

    def whole(self, answers: Sequence[Whole], counts: Counts) -> str:
        """A text_completion."""
        choices = [self._choice(index, one.text, one.pieces, one.reason) for index, one in enumerate(answers)]
        return self._completion(choices, counts)

    def begin(self, index: int) -> str | None:
        """Nothing."""
        return None

    def part(self, part: StreamPart) -> str:
        """A text_completion of what is new."""
        choice = self._choice(part.index, part.text, part.pieces, part.reason)
        return self._completion([choice], part.counts)

    def usage(self, counts: Counts) -> str:
        """Without a choice."""
        return self._completion([], counts)

    def _choice(
        self, index: int, text: str, pieces: Sequence[Piece], reason: FinishReason | None
    ) -> CompletionChoice:
        told = self._logprobs(index, pieces) if self._has_logprobs else None
        # pydantic's: the SDK's own takes ten times as long, for it walks through the types of all fields
        return super(SdkModel, CompletionChoice).model_construct(  # type: ignore[misc]  # a class of one, too
            index=index, text=text, finish_reason=reason, logprobs=told
        )

    def _completion(self, choices: list[CompletionChoice], counts: Counts | None) -> str:
        found = Completion(
            id=self._id,
            choices=choices,
            created=self._created,
            model=self._model,
            object="text_completion",
            usage=counts.usage if counts else None,
        )
        return str(found.model_dump_json(exclude_unset=True))

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> Logprobs:
        offsets = []
        for piece in pieces:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(piece.text)
        return Logprobs(
            tokens=[self._word(piece.chosen.token)[0] for piece in pieces],
            token_logprobs=[piece.chosen.logprob for piece in pieces],
            top_logprobs=[self._likeliest(piece) for piece in pieces],
            text_offset=offsets,
        )

    def _likeliest(self, piece: Piece) -> dict[str, float]:
        """The chosen one is always among them. Of several tokens with one text, the likeliest is told."""
        found: dict[str, float] = {}
        for one in (*piece.likeliest, piece.chosen):
            found.setdefault(self._word(one.token)[0], one.logprob)
        return found
