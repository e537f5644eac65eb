"""A process that has imported what candidates need, and forks one for each request.

`python -m hillclimb.harness.sandbox.fork.zygote SOCKET JUDGE MODULES` is started by `prefork.PreforkRung` with a
clean environment.

    zygote ── fork ──> supervisor, waiting for a request ── fork ──> candidate

The zygote itself never reads a request, so that no candidate inherits another's: one supervisor stands ready, reads the
next one, and is followed by another. Each dies with the one before it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.sandbox import launch
from hillclimb.harness.sandbox.fork.program import Program
from hillclimb.harness.sandbox.fork.supervisor import run_supervisor
from hillclimb.harness.sandbox.kernel import seccomp

MAX_MESSAGE_DESCRIPTORS = 253
"""The kernel's own limit for one message (SCM_MAX_FD)."""

FORK, WARM, TAKEN = b"fork", b"warm", b"t"


def main() -> None:
    """Import, report, and serve until the judge closes the socket. In a fork: become the candidate."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        launch.die_with_parent(int(sys.argv[2]))
        import_modules(json.loads(sys.argv[3]))
    except (ImportError, OSError, HillclimbError) as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:4000])
        return
    control.send(WARM)
    serve(control)()


def import_modules(modules: Sequence[str]) -> None:
    """Import, and see that nothing but this one thread runs; OSError otherwise.

    OpenBLAS starts its threads at import and ends them at a fork, to start them again where they are needed: so
    the first fork is for nothing. What was imported is exempt from garbage collection, which after the import of
    torch and triton takes a fork 0.16-0.29 s, for the pages it has to copy.
    """
    for name in modules:
        importlib.import_module(name)
    for kind in ("cpu", "gpu"):
        with suppress(HillclimbError):  # a machine that no filter is written for
            seccomp.notifying_program(kind)
    first = os.fork()
    if first == 0:
        os._exit(0)
    os.waitpid(first, 0)
    running = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the cheapest way to count
    if running != 1:
        raise OSError(
            f"importing {', '.join(modules)} leaves {running} threads running; a fork would lose them"
        )
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> Program:
    """Keep one supervisor waiting; returns in a candidate only, with its program."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody collects a supervisor
    zygote = os.getpid()
    while True:
        taken, taking = os.pipe()
        if os.fork() == 0:
            os.close(taken)
            return await_request(zygote, control, taking)
        os.close(taking)
        said = os.read(taken, 1)
        os.close(taken)
        if said != TAKEN:
            os._exit(0)


def await_request(zygote: int, control: socket.socket, taking: int) -> Program:
    """Be the next supervisor; ends, and the zygote with it, where the judge hangs up."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        launch.die_with_parent(zygote)
        said, descriptors, _, _ = socket.recv_fds(control, len(FORK), MAX_MESSAGE_DESCRIPTORS)
    except OSError:
        os._exit(0)
    if said != FORK:
        os._exit(0)
    os.write(taking, TAKEN)
    os.close(taking)
    control.detach()
    return run_supervisor(zygote, descriptors)


if __name__ == "__main__":
    main()
