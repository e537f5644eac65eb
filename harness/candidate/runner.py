"""Runs inside the sandbox: the only code that imports a workspace. `python -m harness.candidate.runner SOCKET LOG`.

Nothing said from here decides anything: the judge reads the clock, holds the reference and looks at the
buffers itself. Whatever the workspace breaks in this process, it breaks only for itself.

    judge says   {"op": "load", "workspace", "entry", "preload", "watched"}   answer {"ok": true} or a fault
                 {"op": "map", "arena", "layout"} + descriptor                answer {"ok": true}
                 {"op": "run", "arena", "first", "count"}                     answer {"ok": true, "ns": own clock}
                 {"op": "profile", "arena", "first", "count"}                 answer {"ok": true, "rows": profiler's}
    a fault is   {"fault": "does_not_load" | "raised" | "out_of_memory", "text": traceback's end}
"""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.candidate import wire
from harness.candidate.layout import Layout
from harness.candidate.profiler import Profiler
from harness.sandbox.seccomp import forbid_processes

Kernel = Callable[..., object]
Arguments = list[tuple[np.ndarray, ...]]
"""The arrays of each slot, inputs then outputs."""


def serve(end: socket.socket) -> None:
    """Answer until the judge closes the socket."""
    kernel: Kernel | None = None
    arenas: dict[int, Arguments] = {}
    profiler: Profiler | None = None
    while True:
        message, descriptors = wire.receive(end, most_descriptors=1)
        stage = "does_not_load" if message["op"] == "load" else "raised"
        try:
            answer: dict[str, Any] = {"ok": True}
            if message["op"] == "load":
                profiler = watch(message["workspace"]) if message["watched"] else None
                kernel = load(message["workspace"], message["entry"], message["preload"])
            elif message["op"] == "map":
                arenas[message["arena"]] = map_arena(descriptors[0], Layout.from_json(message["layout"]))
            else:
                assert kernel is not None
                slots = arenas[message["arena"]][message["first"] : message["first"] + message["count"]]
                if message["op"] == "profile":
                    assert profiler is not None
                    answer["rows"] = profiler.measure(partial(call_each, kernel, slots), len(slots))
                else:
                    answer["ns"] = call_each(kernel, slots)
        except MemoryError:
            answer = {"fault": "out_of_memory", "text": _traceback()}
        except Exception:  # noqa: BLE001 - workspace code may raise anything; it is reported, never handled
            answer = {"fault": stage, "text": _traceback()}
        wire.send(end, answer)


def watch(workspace: str) -> Profiler:
    """A profiler that sees every thread the workspace starts."""
    profiler = Profiler(workspace)
    profiler.adopt_threads()
    return profiler


def load(workspace: str, entry: str, preload: list[str]) -> Kernel:
    """Import trusted libraries, give up the right to start processes, then import the workspace's entry."""
    for name in preload:
        importlib.import_module(name)
    forbid_processes()
    file, function = entry.split(":")
    sys.path.insert(0, workspace)
    spec = importlib.util.spec_from_file_location(Path(file).stem, Path(workspace) / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kernel: Kernel = getattr(module, function)
    return kernel


def map_arena(descriptor: int, layout: Layout) -> Arguments:
    memory = mmap.mmap(descriptor, layout.nbytes)
    os.close(descriptor)
    return [
        tuple(
            np.ndarray(a.shape, a.dtype, memory, slot * layout.stride + a.offset)
            for a in (*layout.inputs, *layout.outputs)
        )
        for slot in range(layout.slots)
    ]


def call_each(kernel: Kernel, slots: Arguments) -> int:
    """Call the kernel once on every slot; nanoseconds by this process's own clock."""
    start = time.perf_counter_ns()
    for arguments in slots:
        kernel(*arguments)
    return time.perf_counter_ns() - start


def _traceback() -> str:
    return traceback.format_exc(limit=-6)[-4000:]


def main() -> None:
    end, log = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        serve(end)
    except wire.WireError:
        os._exit(0)


if __name__ == "__main__":
    main()
