"""A process that has imported what candidates need, and forks one for each request.

`python -m harness.sandbox.zygote SOCKET JUDGE MODULES` is started by `prefork.Prefork` with a clean environment.

    judge ── request ──> zygote ── fork ──> minder ── fork ──> candidate
                                            joins the namespaces,    confines itself as its plan says,
                                            waits for the end        then runs the module asked for

The zygote itself never reads a request, so that no candidate inherits another's: it forks, and the minder reads.
The minder is the candidate's parent and the judge's witness of how it ended. Each dies with the one before it.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import HillclimbError
from harness.sandbox import launch
from harness.sandbox.launch import Plan
from harness.sandbox.process import REAP_SECONDS, members
from harness.sandbox.program import Program, program

MOST_DESCRIPTORS = 253
"""The kernel's own limit for one message (SCM_MAX_FD)."""

FORK, WARM = b"fork", b"warm"


@dataclass(frozen=True)
class Request:
    """What the judge wants forked. Descriptors travel beside it, in the order of the fields."""

    plan: Plan
    cwd: str
    lab: str
    """The folder from which `harness` is imported inside."""
    descriptors: Sequence[int]
    """The numbers they are to have."""
    has_output: bool
    namespaces: int
    """How many there are to join."""
    root: Sequence[int] | None
    """Device and inode of the root folder after joining."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, descriptor: int) -> Request:
        """Read what the judge has written into a memory file."""
        fields = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        return cls(**{**fields, "plan": Plan(**fields["plan"])})


def main() -> None:
    """Import, report, and serve until the judge closes the socket. In a fork: become the candidate."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        launch.die_with(int(sys.argv[2]))
        warm(json.loads(sys.argv[3]))
    except (ImportError, OSError, HillclimbError) as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:4000])
        return
    control.send(WARM)
    serve(control)()


def warm(modules: Sequence[str]) -> None:
    """Import, and see that nothing but this one thread runs; OSError otherwise.

    OpenBLAS starts its threads at import and ends them at a fork, to start them again where they are needed: so
    the first fork is for nothing.
    """
    for name in modules:
        importlib.import_module(name)
    first = os.fork()
    if first == 0:
        os._exit(0)
    os.waitpid(first, 0)
    running = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the cheapest way to count
    if running != 1:
        raise OSError(
            f"importing {', '.join(modules)} leaves {running} threads running; a fork would lose them"
        )


def serve(control: socket.socket) -> Program:
    """Fork a minder for each message; returns in a candidate only, with its program."""
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, len(FORK), MOST_DESCRIPTORS)
        if said != FORK:
            os._exit(0)
        zygote = os.getpid()
        if os.fork() == 0:
            control.detach()
            return mind(zygote, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def mind(zygote: int, descriptors: Sequence[int]) -> Program:
    """Be one candidate's minder, to its end; returns in the candidate only, with its program."""
    line = socket.socket(fileno=descriptors[1])
    try:
        launch.die_with(zygote)
        request = Request.read(descriptors[0])
        close_all_but(set(descriptors[1:]))
        border = len(descriptors) - request.namespaces
        lent, namespaces = descriptors[2:border], descriptors[border:]
        join(namespaces, request.root)
        launch.die_with(zygote)  # once more: a change of credentials may have cleared it
        parent = 0 if namespaces else os.getpid()  # 0 is how one outside the namespace of processes looks
        candidate = os.fork()
        if candidate == 0:
            os.setsid()
            return settle(line, request, parent, lent)
    except (OSError, ValueError, HillclimbError) as error:
        complain(line, error)
    return watch(line, candidate, lent, alone=bool(namespaces))


def settle(line: socket.socket, request: Request, minder: int, descriptors: Sequence[int]) -> Program:
    """Confine this process, tell the judge, and name the program to run. Anything that fails ends it."""
    try:
        os.chdir(request.cwd)
        stay = place(line, request, descriptors)
        os.environ.clear()
        os.environ.update(request.plan.environment)
        launch.confine(replace(request.plan, parent=minder))
        socket.send_fds(stay, [json.dumps({"ready": True}).encode()], [])
    except (OSError, ValueError, HillclimbError) as error:
        complain(line, error)
    stay.close()
    return program(request.plan.argv, request.lab)


def join(namespaces: Sequence[int], root: Sequence[int] | None) -> None:
    """Enter namespaces one by one, and see that the root folder is theirs; OSError otherwise."""
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor in namespaces:
        if libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
        os.close(descriptor)
    if root is not None:
        found = Path("/").stat()
        if [found.st_dev, found.st_ino] != list(root):
            raise OSError("the root folder is not the sandbox's after joining its namespaces")


def place(line: socket.socket, request: Request, received: Sequence[int]) -> socket.socket:
    """Give every descriptor its number, open /dev/null for the rest; the line, out of their way."""
    above = max((2, *request.descriptors)) + 1
    lifted = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in received]
    stay = socket.socket(fileno=fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, above))
    for descriptor in (*received, line.detach()):
        os.close(descriptor)
    null = os.open("/dev/null", os.O_RDWR)
    output = lifted.pop() if request.has_output else null
    for descriptor, number in (
        (null, 0),
        (output, 1),
        (output, 2),
        *zip(lifted, request.descriptors, strict=True),
    ):
        os.dup2(descriptor, number)
    close_known = {null, output, *lifted} - {0, 1, 2, *request.descriptors}
    for descriptor in close_known:
        os.close(descriptor)
    return stay


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor but the three standard ones."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def watch(line: socket.socket, candidate: int, lent: Sequence[int], *, alone: bool) -> NoReturn:
    """Show the judge the candidate, wait for its end and say how it was. Without namespaces, end its group first."""
    handle = os.pidfd_open(candidate)
    with suppress(OSError):
        socket.send_fds(line, [json.dumps({"pid": candidate}).encode()], [handle])
    for descriptor in (handle, *lent):
        os.close(descriptor)
    if not alone:
        os.waitid(os.P_PID, candidate, os.WEXITED | os.WNOWAIT)
        end_group(candidate)
    code = os.waitstatus_to_exitcode(os.waitpid(candidate, 0)[1])
    say(line, {"exit": code} if code >= 0 else {"signal": -code})
    os._exit(0)


def end_group(leader: int) -> None:
    """SIGKILL a group until nobody of it is left, or for as long as the judge would wait."""
    deadline = time.monotonic() + REAP_SECONDS
    while True:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        if not members(leader) or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def complain(line: socket.socket, error: Exception) -> NoReturn:
    """Tell the judge why there will be no candidate."""
    say(line, {"failed": f"{type(error).__name__}: {error}"[:4000]})
    os._exit(127)


def say(line: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the judge has gone, and we with it
        line.send(json.dumps(message).encode())


if __name__ == "__main__":
    main()
