"""`hillclimb serve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.harness.serving.backend import Backend

BACKENDS = Literal["mock"]


def serve(
    backend: Annotated[
        BACKENDS,
        typer.Option(
            help="Who answers. `mock` has no model: its answers follow from the prompt, in a set time."
        ),
    ] = "mock",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name that clients ask for. Default: the backend's."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    unix_socket: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Listen on a socket of this path instead.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Answers that are made at once.")] = 8,
    context: Annotated[
        int, typer.Option(min=2, help="Tokens of a prompt and its answer, at the most.")
    ] = 8192,
    answer_tokens: Annotated[
        int, typer.Option(min=1, help="Of the mock: where it would end an answer.")
    ] = 64,
    prefill_ms: Annotated[float, typer.Option(min=0, help="Of the mock: for each prompt.")] = 0.0,
    decode_ms: Annotated[float, typer.Option(min=0, help="Of the mock: for each step of all answers.")] = 0.0,
    json: JsonOption = False,
) -> None:
    """Answer as a server of OpenAI's API does: chat and text completions, streamed or whole. Ctrl-C ends it.

    Its paths are /v1/chat/completions, /v1/completions, /v1/models, /health and /metrics. What is not implemented, such
    as `tools`, is refused by name.

    Example: `hillclimb serve --backend mock --port 8000 --decode-ms 5`
    """
    try:
        from hillclimb.harness.serving.server import listen_at, listen_on
        from hillclimb.harness.serving.server import serve as serve_backend
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'hillclimb[serving]'") from None
    from hillclimb.harness.serving.mock import MockBackend

    found: Backend = MockBackend(
        model or "mock",
        slots=slots,
        context=context,
        answer_tokens=answer_tokens,
        prefill_seconds=prefill_ms / 1e3,
        decode_seconds=decode_ms / 1e3,
    )
    listening = listen_on(unix_socket) if unix_socket else listen_at(host, port)
    place = f"unix:{unix_socket}" if unix_socket else "http://{}:{}/v1".format(*listening.getsockname()[:2])
    try:
        serve_backend(found, listening, lambda: _tell(found.model, backend, place, json=json))
    finally:
        if unix_socket:
            unix_socket.unlink(missing_ok=True)


def _tell(model: str, backend: str, place: str, *, json: bool) -> None:
    if json:
        import json as as_json

        print(as_json.dumps({"model": model, "backend": backend, "at": place}))
    else:
        print(f"{model} by the backend {backend}, at {place}; Ctrl-C ends it")
    sys.stdout.flush()
