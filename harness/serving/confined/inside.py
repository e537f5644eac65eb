"""Runs inside the sandbox: a workspace's own backend, and the server that answers by it.

`python -m hillclimb.harness.serving.confined.inside LISTENING SOCKET`.

    says       {"ok": true}, when nothing of the workspace was read yet
    is told    workspace, entry, name, path, context, slots, process filter    {"ok": true, "model": its name}
    a fault is {"fault": a key of conversation.FAULTS, "text": traceback's end}

The last answer comes once requests are taken at LISTENING, the number of a socket that is bound. Nothing is said after
it, but by a server that is watched: see hillclimb.harness.serving.confined.listing.
A backend for a GPU may start compilers while it is made, so the filter that forbids new processes is loaded after that,
and else before.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from hillclimb.harness.candidate.native_kernel import CompilationError, ForeignSymbolError
from hillclimb.harness.candidate.runner import import_kernel
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.process_filter import load_filter
from hillclimb.harness.serving.backends.backend import Backend, ServedModel
from hillclimb.harness.serving.backends.native_function import compile_all
from hillclimb.harness.serving.confined.listing import answer_lists, functions_list, kernels_list
from hillclimb.harness.serving.server import serve

PARTS = (
    *("model", "context", "vocabulary", "slots", "end_tokens"),
    *("encode", "encode_chat", "text", "prefill", "decode", "reset"),
)
"""What a backend has."""

FAULTS = {MemoryError: "out_of_memory", CompilationError: "does_not_compile", ForeignSymbolError: "policy"}

FAULT_CHARACTERS = 4000


def main() -> None:
    """Ends with status 1 where there is no backend."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    listening, end = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    wire.send(end, {"ok": True})
    order, _ = wire.receive(end)
    no_more_processes = bytes.fromhex(order.pop("process_filter"))
    is_filtered_later = order.pop("is_filtered_later")
    listed = None
    if order.pop("is_watched"):
        listed = kernels_list() if is_filtered_later else functions_list(order["workspace"])
    sys.excepthook = partial(tell_fault, end)
    compile_all(Path(order["workspace"]), Path(os.environ["TMPDIR"]))
    if not is_filtered_later:
        load_filter(no_more_processes)
    backend = make_backend(**order)
    sys.excepthook = sys.__excepthook__
    if is_filtered_later:
        load_filter(no_more_processes)

    def tell() -> None:
        if listed is not None:
            answer_lists(end, listed)
        wire.send(end, {"ok": True, "model": backend.model})

    serve(backend, listening, tell)


def tell_fault(
    end: socket.socket, kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    """What a workspace raised while it was loaded."""
    fault = next((name for known, name in FAULTS.items() if issubclass(kind, known)), "does_not_load")
    text = "".join(traceback.format_exception(kind, error, at, limit=-6))
    wire.send(end, {"fault": fault, "text": text[-FAULT_CHARACTERS:]})


def make_backend(workspace: str, entry: str, name: str, path: str, **sizes: Any) -> Backend:
    """What the workspace's function returns. Raises TypeError where that is no backend."""
    create = import_kernel(workspace, entry)
    backend: object = create(ServedModel(name, Path(path) if path else None, **sizes))
    missing = [part for part in PARTS if not hasattr(backend, part)]
    if missing:
        raise TypeError(f"{entry} returned {type(backend).__name__}, which lacks {', '.join(missing)}")
    return cast("Backend", backend)


if __name__ == "__main__":
    main()
