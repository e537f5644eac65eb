"""The HTTP side of a server: OpenAI's API over a service."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hillclimb.harness.serving.backends.backend import Backend
from hillclimb.harness.serving.engine import CLOSED
from hillclimb.harness.serving.errors import ApiError, of_fields
from hillclimb.harness.serving.forms import ChatForm, Counts, Form, Spell, StreamPart, TextForm, Whole
from hillclimb.harness.serving.generation import Failure, Finish, Piece
from hillclimb.harness.serving.metrics import CONTENT_TYPE, Metrics
from hillclimb.harness.serving.requests import AnswerRequest, ChatRequest, CompletionRequest
from hillclimb.harness.serving.service import Events, Service

HUNG_UP = 499
"""Status of a request whose client is gone, as nginx has it: nobody reads it."""

PROBES = ["GET", "HEAD"]


def create_app(service: Service) -> FastAPI:
    """The paths of the API."""
    backend = service.backend
    app = FastAPI(title="hillclimb serve")
    _add_errors(app)
    _add_probes(app, service)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest, request: Request) -> Response:
        form = ChatForm(backend.model, _spell(backend, asked), has_logprobs=asked.top_tokens is not None)
        return await _answer(service, asked, form, request)

    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        form = TextForm(backend.model, _spell(backend, asked), has_logprobs=asked.top_tokens is not None)
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


def _spell(backend: Backend, asked: AnswerRequest) -> Spell:
    """How single tokens are called where their logarithms are told."""
    if asked.return_tokens_as_token_ids:
        return lambda tokens: f"token_id:{tokens[0]}"
    return backend.text


async def _answer(service: Service, asked: AnswerRequest, form: Form, request: Request) -> Response:
    generations = await asyncio.to_thread(service.generations, asked)
    events = service.events(generations)
    prompts = sum(len(one.prompt) for one in generations[:: asked.n])
    service.metrics.prompt_tokens.inc(prompts)
    if asked.stream:
        return StreamingResponse(_stream(events, asked, form, prompts), media_type="text/event-stream")
    text = await _unless_hung_up(_whole(events, form, prompts, len(generations)), request)
    if text is None:
        return Response(status_code=HUNG_UP)
    return Response(text, media_type="application/json")


async def _whole(events: Events, form: Form, prompts: int, count: int) -> str:
    answers = [Whole() for _ in range(count)]
    async with aclosing(events) as all_events:
        async for at, event in all_events:
            if isinstance(event, Failure):
                raise _error_of(event)
            answers[at].text += event.text
            if isinstance(event, Piece):
                answers[at].pieces.append(event)
            else:
                answers[at].reason = event.reason
    return form.whole(answers, Counts(prompts, sum(len(one.pieces) for one in answers)))


async def _stream(events: Events, asked: AnswerRequest, form: Form, prompts: int) -> AsyncIterator[str]:
    """Server-sent events, up to [DONE]."""
    options, made = asked.stream_options, Counter[int]()
    async with aclosing(events) as all_events:
        async for at, event in all_events:
            if isinstance(event, Failure):
                yield _event(_error_of(event).text)
                return
            if at not in made and (chunk := form.begin(at)):
                yield _event(chunk)
            made[at] += isinstance(event, Piece)
            counts = Counts(prompts, made[at]) if options.continuous_usage_stats else None
            pieces = [event] if isinstance(event, Piece) else []
            reason = event.reason if isinstance(event, Finish) else None
            if event.text or reason or asked.top_tokens is not None:
                yield _event(form.part(StreamPart(at, event.text, pieces, reason, counts)))
    if options.include_usage:
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


def _error_of(failure: Failure) -> ApiError:
    return ApiError(503 if failure == CLOSED else 500, failure.reason)


def _event(text: str) -> str:
    return f"data: {text}\n\n"
