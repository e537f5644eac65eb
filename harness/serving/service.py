"""What a request is to a backend, and the events of its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from hillclimb.harness.serving.backends.backend import Backend
from hillclimb.harness.serving.engine import Engine
from hillclimb.harness.serving.errors import ApiError
from hillclimb.harness.serving.generation import AnswerEvent, Generation, Piece
from hillclimb.harness.serving.metrics import Metrics
from hillclimb.harness.serving.requests import (
    MOST_OF_REQUEST,
    AnswerRequest,
    ChatRequest,
    CompletionRequest,
)

Events = AsyncGenerator[tuple[int, AnswerEvent], None]
"""Of the answers to one request, each with the answer's index."""


class Service:
    """One backend, and what makes its answers. Whoever makes one closes its engine."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.engine = Engine(backend)
        self.metrics = Metrics(self.engine)

    def generations(self, asked: AnswerRequest) -> list[Generation]:
        """Those that a request asks for, by prompts. Raises ApiError."""
        if asked.model != self.backend.model:
            raise ApiError(
                404,
                f"the model {asked.model!r} is not served here; ask for {self.backend.model!r}",
                "model",
                "model_not_found",
            )
        prompts = self._prompts(asked)
        if len(prompts) * asked.n > MOST_OF_REQUEST:
            told = f"{MOST_OF_REQUEST} answers are the most, not {len(prompts)} prompts times n = {asked.n}"
            raise ApiError(400, told, "n")
        return [self._generation(asked, prompt, at) for prompt in prompts for at in range(asked.n)]

    def _prompts(self, asked: AnswerRequest) -> list[tuple[int, ...]]:
        field = "messages" if isinstance(asked, ChatRequest) else "prompt"
        try:
            found = self._encoded(asked)
        except ValueError as error:
            raise ApiError(400, f"{field}: {error}", field) from None
        if not all(found):
            raise ApiError(400, f"{field}: a prompt has no tokens", field)
        unknown = next((token for one in found for token in one if token >= self.backend.vocabulary), None)
        if unknown is not None:
            told = f"{field}: the model has {self.backend.vocabulary} tokens, and none is {unknown}"
            raise ApiError(400, told, field)
        return [tuple(one) for one in found]

    def _encoded(self, asked: AnswerRequest) -> list[list[int]]:
        if isinstance(asked, ChatRequest):
            return [self.backend.encode_chat([one.plain for one in asked.messages])]
        assert isinstance(asked, CompletionRequest)
        return [self.backend.encode(one) if isinstance(one, str) else one for one in asked.prompts]

    def _generation(self, asked: AnswerRequest, prompt: tuple[int, ...], at: int) -> Generation:
        room = self.backend.context - len(prompt)
        most = asked.most_tokens if asked.most_tokens is not None else room
        if most > room or room < 1:
            told = f"a prompt of {len(prompt)} tokens, and {max(most, 1)} for the answer"
            raise ApiError(
                400,
                f"the context has {self.backend.context} tokens, and the request needs more: {told}",
                code="context_length_exceeded",
            )
        if asked.min_tokens > most:
            raise ApiError(
                400, f"min_tokens: {asked.min_tokens} is more than the limit of {most}", "min_tokens"
            )
        return Generation(
            prompt=prompt,
            most_tokens=most,
            least_tokens=asked.min_tokens,
            ignores_end=asked.ignore_eos,
            stop=tuple(asked.stop),
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=None if asked.seed is None else asked.seed + at,
            top_logprobs=asked.top_tokens,
        )

    async def events(self, generations: Sequence[Generation]) -> Events:
        """Of all answers, as they come. Where nobody iterates any longer, no more of them is made."""
        queue: asyncio.Queue[tuple[int, AnswerEvent]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        answers = [
            self.engine.submit(one, _Delivery(self.metrics, loop, queue, at))
            for at, one in enumerate(generations)
        ]
        left = len(answers)
        try:
            while left:
                at, event = await queue.get()
                left -= not isinstance(event, Piece)
                yield at, event
        finally:
            for answer in answers:
                self.engine.cancel(answer)


class _Delivery:
    """Brings the events of one answer from the engine's thread to a queue, and counts its tokens."""

    def __init__(
        self,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        queue: asyncio.Queue[tuple[int, AnswerEvent]],
        at: int,
    ) -> None:
        self._metrics, self._loop, self._queue, self._at = metrics, loop, queue, at
        self._last, self._has_begun = time.monotonic(), False

    def __call__(self, event: AnswerEvent) -> None:
        if isinstance(event, Piece):
            now = time.monotonic()
            watched = self._metrics.token if self._has_begun else self._metrics.first_token
            watched.observe(now - self._last)
            self._metrics.answer_tokens.inc()
            self._last, self._has_begun = now, True
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (self._at, event))
