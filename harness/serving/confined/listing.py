"""Runs inside the sandbox: lists what runs while a server answers.

is told    {"op": "list", "kept": names of functions}    {"ok": true}, once everything is seen
           {"op": "end"}                                 {"ok": true, "rows": as harness.profile.rows reads them}
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import cache, partial

from hillclimb.harness.candidate import gpu_profiler
from hillclimb.harness.candidate.foreign_functions import tell_of_calls
from hillclimb.harness.candidate.profiler import Profiler, ProfileRow
from hillclimb.harness.channel import wire

List = Callable[[Callable[[], int], frozenset[str]], list[ProfileRow]]


def functions_list(workspace: str) -> List:
    """Of functions on the CPU, in threads and libraries that come from here on."""
    profiler = Profiler(workspace)
    profiler.adopt_threads()
    tell_of_calls()
    return lambda work, kept: profiler.measure(work, 1, kept)


def kernels_list() -> List:
    """Of kernels on the GPU."""
    return lambda work, kept: gpu_profiler.measure(work, 1, kept)


def answer_lists(end: socket.socket, listed: List) -> None:
    """Answer from a thread of its own, for as long as the other side asks."""
    threading.Thread(target=_answer, args=(end, listed), daemon=True).start()


def _answer(end: socket.socket, listed: List) -> None:
    while True:
        try:
            asked, _ = wire.receive(end)
        except wire.WireError:
            return
        until_ended = cache(partial(_until_ended, end))  # a profiler that saw nothing has a second one try
        try:
            rows = listed(until_ended, frozenset(asked["kept"]))
        except gpu_profiler.NothingTraced:
            until_ended()  # there may be none that could begin
            rows = []
        wire.send(end, {"ok": True, "rows": [list(row) for row in rows]})


def _until_ended(end: socket.socket) -> int:
    """Nanoseconds until the other side has seen enough."""
    began = time.perf_counter_ns()
    wire.send(end, {"ok": True})
    wire.receive(end)
    return time.perf_counter_ns() - began
