"""`hillclimb serve`."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hillclimb.agent.commands.completion import complete_case
from hillclimb.agent.commands.options import JsonOption, TrustOption
from hillclimb.agent.screen.escaping import escape_unprintable
from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.backends.backend import Backend, Mode, ModelDtype

if TYPE_CHECKING:
    from hillclimb.harness.case.case import Case

BackendName = Literal["mock", "transformers", "custom"]

OPTIONS_OF: dict[str, tuple[BackendName, ...]] = {
    "model_path": ("transformers",),
    "mode": ("transformers",),
    "device": ("transformers",),
    "dtype": ("transformers",),
    "answer_tokens": ("mock",),
    "prefill_ms": ("mock",),
    "decode_ms": ("mock",),
    "slots": ("mock", "transformers"),
    "context": ("mock", "transformers"),
    "trust_workspace": ("custom",),
}
"""Options that are for some backends only. A case's own has its sizes and its device of case.yaml."""

Tell = Callable[[str], None]
"""Told the model's name once requests are taken."""

Answering = Callable[[socket.socket, Tell], None]
"""Answers at a socket that is bound, until it is asked to end."""

BackendOption = Annotated[
    BackendName | None,
    typer.Option(
        help="Who answers. `mock` has no model: its answers follow from the prompt, in a set time. `transformers` "
        "runs the snapshot of --model-path. `custom` is the case's own, in the sandbox. Default: mock, or custom with "
        "--case."
    ),
]
ServedCaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="CASE",
        autocompletion=complete_case,
        help="Serve this case's model: its name, its model_path and its section `serving`.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name that clients ask for. Default: the case's model, mock, or that of the snapshot.",
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
    context_of_command: typer.Context,
    backend: BackendOption = None,
    case: ServedCaseOption = None,
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
    trust_workspace: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Answer as a server of OpenAI's API does: chat and text completions, streamed or whole. Ctrl-C ends it.

    Its paths are /v1/chat/completions, /v1/completions, /v1/models, /health and /metrics. What is not implemented, such
    as `tools`, is refused by name.

    Examples:

    - `hillclimb serve --backend mock --port 8000 --decode-ms 5`

    - `hillclimb serve --backend transformers --model-path ~/models/SmolLM2-135M-Instruct --mode static`

    - `hillclimb serve --case llama_1b/single_stream --port 8001`
    """
    asked = _case(case)
    backend = backend or ("custom" if asked else "mock")
    _require_fitting(context_of_command, backend)
    name, sizes = model or _model_name(asked), _sizes(asked, slots, context)
    with _serving_packages():
        if backend == "custom":
            serving = _custom(asked, model, trust_workspace=trust_workspace)
        elif backend == "mock":
            serving = _mock(name or "mock", sizes, answer_tokens, prefill_ms / 1e3, decode_ms / 1e3)
        else:
            snapshot = model_path or _model_path(asked)
            serving = _snapshot(snapshot, name, sizes, mode=mode, device=device, dtype=dtype)
        with _listening(host, port, unix_socket) as (listening, place):
            signal.signal(signal.SIGTERM, _end)
            serving(listening, lambda name: _tell(name, backend, place, json=json))


def _require_fitting(command: typer.Context, backend: BackendName) -> None:
    """Raises UsageError for an option that was given and says nothing to this backend."""
    for name, others in OPTIONS_OF.items():
        source = command.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and backend not in others:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for --backend {' or '.join(others)}, and {backend} answers here")


@contextmanager
def _serving_packages() -> Iterator[None]:
    """Raises UsageError for one that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'hillclimb[serving]'") from None


def _case(given: str | None) -> Case | None:
    from hillclimb.harness.case.case import Case, find_case

    return Case(find_case(given)) if given is not None else None


class ServedSizes(NamedTuple):
    """Of a backend; None for what it takes by itself."""

    slots: int | None
    context: int | None


def _sizes(case: Case | None, slots: int | None, context: int | None) -> ServedSizes:
    """As they were given, else the case's."""
    serving = case.settings.serving if case else None
    return ServedSizes(
        slots if slots is not None or serving is None else serving.slots,
        context if context is not None or serving is None else serving.context,
    )


def _model_name(case: Case | None) -> str | None:
    return case.settings.model or None if case else None


def _model_path(case: Case | None) -> Path | None:
    from hillclimb.harness.serving.confined.confined_server import model_path

    return model_path(case) if case else None


@contextmanager
def _listening(host: str, port: int, unix_socket: Path | None) -> Iterator[tuple[socket.socket, str]]:
    """A bound socket, and its address for people."""
    from hillclimb.harness.serving.server import listen_at, listen_on

    listening = listen_on(unix_socket) if unix_socket else listen_at(host, port)
    try:
        with listening:
            yield listening, f"unix:{unix_socket}" if unix_socket else _url(*listening.getsockname()[:2])
    finally:
        if unix_socket:
            unix_socket.unlink(missing_ok=True)


def _custom(case: Case | None, name: str | None, *, trust_workspace: bool) -> Answering:
    """The case's own backend, in the sandbox."""
    from hillclimb.harness.judge.open_device import open_device
    from hillclimb.harness.serving.confined.confined_server import serve_confined, serving_spec

    if case is None:
        raise UsageError("--backend custom is a case's own; give its --case")
    device_kind = case.settings.device

    def serve_it(listening: socket.socket, tell: Tell) -> None:
        with closing(open_device(device_kind)) as device:
            spec = serving_spec(case, device.nodes(), device.variables(), name)
            _say(f"{case.name}: {spec.entry} is loaded, in {spec.load_seconds:g} s at the most")
            serve_confined(spec, listening, tell, _say, trust_workspace=trust_workspace)

    return serve_it


def _say(line: str) -> None:
    """On stderr, what others wrote included."""
    print(escape_unprintable(line), file=sys.stderr, flush=True)


def _here(backend: Backend) -> Answering:
    """A backend of the lab's own, in this process."""
    from hillclimb.harness.serving.server import serve as serve_backend

    return lambda listening, tell: serve_backend(backend, listening, lambda: tell(backend.model))


def _mock(
    model: str, sizes: ServedSizes, answer_tokens: int, prefill_seconds: float, decode_seconds: float
) -> Answering:
    from hillclimb.harness.serving.backends.mock_backend import MockBackend

    return _here(
        MockBackend(
            model,
            slots=sizes.slots or 8,
            context=sizes.context or 8192,
            answer_tokens=answer_tokens,
            prefill_seconds=prefill_seconds,
            decode_seconds=decode_seconds,
        )
    )


def _snapshot(snapshot: Path | None, model: str | None, sizes: ServedSizes, **options: Any) -> Answering:
    from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend

    if snapshot is None:
        raise UsageError("--backend transformers takes a snapshot; give its --model-path")
    slots = sizes.slots or 1
    return _here(TransformersBackend(snapshot, model=model, slots=slots, context=sizes.context, **options))


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
        print(f"{escape_unprintable(model)} by the backend {backend}, at {place}; Ctrl-C ends it")
    sys.stdout.flush()
