"""`hillclimb serve`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.backend import Backend, Mode, ModelDtype

BackendName = Literal["mock", "transformers"]
BackendOption = Annotated[
    BackendName,
    typer.Option(
        help="Who answers. `mock` has no model: its answers follow from the prompt, in a set time. `transformers` "
        "runs the snapshot of --model-path."
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The name that clients ask for. Default: mock, or that of the snapshot."
    ),
]
SocketOption = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Listen on a socket of this path instead.")
]
SlotsOption = Annotated[
    int | None, typer.Option(min=1, help="Answers that are made at once. Default: 8 of the mock, else 1.")
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Tokens of a prompt and its answer, at the most. Default: 8192 of the mock, else the model's.",
    ),
]
SnapshotOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A folder with safetensors, or a GGUF file. Nothing is fetched."),
]
ModeOption = Annotated[
    Mode,
    typer.Option(
        help="Of transformers: a cache of keys and values that grows, one of a fixed size, or that and the step "
        "compiled by torch."
    ),
]
WeightsOption = Annotated[ModelDtype, typer.Option(help="Of transformers: that of the weights.")]


def serve(
    backend: BackendOption = "mock",
    model: NameOption = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    unix_socket: SocketOption = None,
    slots: SlotsOption = None,
    context: ContextOption = None,
    model_path: SnapshotOption = None,
    mode: ModeOption = "eager",
    device: Annotated[str, typer.Option(help="Of transformers: cpu, cuda or cuda:N.")] = "cpu",
    dtype: WeightsOption = "float32",
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

    Examples:

    - `hillclimb serve --backend mock --port 8000 --decode-ms 5`

    - `hillclimb serve --backend transformers --model-path ~/models/SmolLM2-135M-Instruct --mode static`
    """
    with _serving_packages():
        from hillclimb.harness.serving.server import listen_at, listen_on
        from hillclimb.harness.serving.server import serve as serve_backend

        if backend == "mock":
            found = _mock(
                model_path,
                model=model or "mock",
                slots=slots or 8,
                context=context or 8192,
                answer_tokens=answer_tokens,
                prefill_seconds=prefill_ms / 1e3,
                decode_seconds=decode_ms / 1e3,
            )
        else:
            options = {"mode": mode, "device": device, "dtype": dtype}
            found = _snapshot(model_path, model=model, slots=slots or 1, context=context, **options)
    listening = listen_on(unix_socket) if unix_socket else listen_at(host, port)
    place = f"unix:{unix_socket}" if unix_socket else _url(*listening.getsockname()[:2])
    signal.signal(signal.SIGTERM, _end)
    try:
        serve_backend(found, listening, lambda: _tell(found.model, backend, place, json=json))
    finally:
        if unix_socket:
            unix_socket.unlink(missing_ok=True)


@contextmanager
def _serving_packages() -> Iterator[None]:
    """Raises UsageError for one that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'hillclimb[serving]'") from None


def _mock(snapshot: Path | None, **options: Any) -> Backend:
    from hillclimb.harness.serving.mock_backend import MockBackend

    if snapshot is not None:
        raise UsageError(f"the mock has no snapshot; {snapshot} takes --backend transformers")
    return MockBackend(**options)


def _snapshot(snapshot: Path | None, **options: Any) -> Backend:
    from hillclimb.harness.serving.transformers_backend import TransformersBackend

    if snapshot is None:
        raise UsageError("--backend transformers takes a snapshot; give its --model-path")
    return TransformersBackend(snapshot, **options)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def _end(number: int, _: object) -> None:
    """uvicorn catches SIGTERM, ends the server, and raises it again: what is left to do is done then."""
    sys.exit(128 + number)


def _tell(model: str, backend: str, place: str, *, json: bool) -> None:
    if json:
        import json as as_json

        print(as_json.dumps({"model": model, "backend": backend, "at": place}))
    else:
        print(f"{model} by the backend {backend}, at {place}; Ctrl-C ends it")
    sys.stdout.flush()
