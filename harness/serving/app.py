"""The HTTP side of a server: OpenAI's API over an engine."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hillclimb.harness.serving.backend import Backend
from hillclimb.harness.serving.engine import Engine
from hillclimb.harness.serving.errors import ApiError, of_fields
from hillclimb.harness.serving.forms import ChatForm, Counts, Form, StreamPart, TextForm, Whole
from hillclimb.harness.serving.generation import AnswerEvent, Failure, Finish, Generation, Piece
from hillclimb.harness.serving.metrics import CONTENT_TYPE, Metrics
from hillclimb.harness.serving.requests import (
    MOST_OF_REQUEST,
    AnswerRequest,
    ChatRequest,
    CompletionRequest,
)

HUNG_UP = 499
"""Status of a request whose client is gone, as nginx has it: nobody reads it."""

PROBES = ["GET", "HEAD"]


class Service:
    """One backend behind HTTP."""

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
        if len(prompts) * asked.answers > MOST_OF_REQUEST:
            told = f"{MOST_OF_REQUEST} answers are the most, not {len(prompts)} prompts times n = {asked.answers}"
            raise ApiError(400, told, "n")
        return [self._generation(asked, prompt, at) for prompt in prompts for at in range(asked.answers)]

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
            stop=tuple(asked.stop or ()),
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_p=1.0 if asked.top_p is None else asked.top_p,
            seed=None if asked.seed is None else asked.seed + at,
            top_logprobs=asked.top_tokens,
        )

    async def events(
        self, generations: Sequence[Generation]
    ) -> AsyncGenerator[tuple[int, AnswerEvent], None]:
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


def create_app(backend: Backend) -> FastAPI:
    """The app; its engine runs until it is shut down."""
    service = Service(backend)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.engine.close)

    app = FastAPI(title="hillclimb serve", lifespan=lifespan)
    app.state.engine = service.engine
    _add_errors(app)
    _add_probes(app, service)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest, request: Request) -> Response:
        spell, has_logprobs = backend.text, asked.top_tokens is not None
        form = ChatForm(backend.model, spell, has_logprobs=has_logprobs)
        return await _answer(service, asked, form, request)

    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        spell, has_logprobs = backend.text, asked.top_tokens is not None
        form = TextForm(backend.model, spell, has_logprobs=has_logprobs)
        return await _answer(service, asked, form, request)

    app.add_middleware(RequestCount, metrics=service.metrics)
    return app


class RequestCount:
    """Counts requests by the path of their route and their status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One of them, or another event of the server."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(path, str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counted)


def _add_probes(app: FastAPI, service: Service) -> None:
    begun = int(time.time())
    model = {"id": service.backend.model, "object": "model", "created": begun, "owned_by": "hillclimb"}

    @app.api_route("/health", methods=PROBES)
    async def health() -> Response:
        return Response(status_code=200 if service.engine.is_open else 503)

    @app.api_route("/metrics", methods=PROBES)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    @app.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        if name != service.backend.model:
            raise ApiError(404, f"the model {name!r} is not served here", "model", "model_not_found")
        return JSONResponse(model)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def told(_: Request, error: ApiError) -> Response:
        return Response(error.text, error.status, media_type="application/json")

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        return await told(request, of_fields(error.errors()))

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        response = await told(request, ApiError(error.status_code, message))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return await told(request, ApiError(500, f"the server failed: {type(error).__name__}: {error}"))


async def _answer(service: Service, asked: AnswerRequest, form: Form, request: Request) -> Response:
    generations = await asyncio.to_thread(service.generations, asked)
    events = service.events(generations)
    prompts = sum(len(one.prompt) for one in generations[:: asked.answers])
    service.metrics.prompt_tokens.inc(prompts)
    if asked.stream:
        return StreamingResponse(_stream(events, asked, form, prompts), media_type="text/event-stream")
    text = await _unless_hung_up(_whole(events, form, prompts, len(generations)), request)
    if text is None:
        return Response(status_code=HUNG_UP)
    return Response(text, media_type="application/json")


async def _whole(
    events: AsyncGenerator[tuple[int, AnswerEvent], None], form: Form, prompts: int, count: int
) -> str:
    answers = [Whole() for _ in range(count)]
    async with aclosing(events) as all_events:
        async for at, event in all_events:
            if isinstance(event, Failure):
                raise ApiError(500, event.reason)
            answers[at].text += event.text
            if isinstance(event, Piece):
                answers[at].pieces.append(event)
            else:
                answers[at].reason = event.reason
    return form.whole(answers, Counts(prompts, sum(len(one.pieces) for one in answers)))


async def _stream(
    events: AsyncGenerator[tuple[int, AnswerEvent], None],
    asked: AnswerRequest,
    form: Form,
    prompts: int,
) -> AsyncIterator[str]:
    """Server-sent events, up to [DONE]."""
    options, made = asked.stream_options, Counter[int]()
    is_continuous = bool(options and options.continuous_usage_stats)
    async with aclosing(events) as all_events:
        async for at, event in all_events:
            if isinstance(event, Failure):
                yield _event(ApiError(500, event.reason).text)
                return
            if at not in made and (chunk := form.begin(at)):
                yield _event(chunk)
            made[at] += isinstance(event, Piece)
            counts = Counts(prompts, made[at]) if is_continuous else None
            pieces = [event] if isinstance(event, Piece) else []
            reason = event.reason if isinstance(event, Finish) else None
            if event.text or reason or asked.top_tokens is not None:
                yield _event(form.part(StreamPart(at, event.text, pieces, reason, counts)))
    if options and options.include_usage:
        yield _event(form.usage(Counts(prompts, made.total())))
    yield _event("[DONE]")


async def _unless_hung_up(answer: Coroutine[Any, Any, str], request: Request) -> str | None:
    """The answer; None, and it is given up, where its client is gone before."""
    task = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, gone):
            one.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(text: str) -> str:
    return f"data: {text}\n\n"
