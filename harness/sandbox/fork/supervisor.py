"""The supervisor: the parent of one candidate, which leads it behind the border and watches over it from outside.

    judge ── request ──> supervisor ── fork ──> candidate
                         waits for bubblewrap,    confines itself as its plan says,
                         joins the namespaces     then runs the module asked for

    it says to the judge    {"first": pid} + its pidfd, its namespace's /proc    where there are namespaces
                            {"pid": pid} + its pidfd
                            {"ready": true, "asks": ...}                         the candidate itself, confined
                            {"sealed": true}                                     the answer to SEAL
                            {"exit": status} or {"signal": number}               the last word
                            {"failed": why}                                      instead of any of these

The supervisor is the judge's witness of how the candidate ended. It also holds the listener of the candidate's filter
(seccomp.ask_about_processes): before SEAL every new process and program is let through, after it the first that is
tried ends the candidate.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.sandbox import launch
from hillclimb.harness.sandbox.fork import bubblewrap_ready
from hillclimb.harness.sandbox.fork.listener import SeccompListener
from hillclimb.harness.sandbox.fork.namespace_plan import Namespaces
from hillclimb.harness.sandbox.fork.program import Program, make_program
from hillclimb.harness.sandbox.kernel import process_table
from hillclimb.harness.sandbox.launch import ConfinementPlan
from hillclimb.harness.sandbox.process import REAP_SECONDS

SEAL = b"seal"


@dataclass(frozen=True)
class ForkRequest:
    """What the judge wants forked. Descriptors travel beside it, in the order of the fields."""

    plan: ConfinementPlan
    cwd: str
    python_path: str
    """The folder from which `harness` is imported inside."""
    descriptors: Sequence[int]
    """The numbers they are to have."""
    has_output: bool
    holder: str | None
    """The program that will hold the namespaces to join; with a pipe that names its process. None: the host's own."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, descriptor: int) -> ForkRequest:
        """Read what the judge has written into a memory file."""
        fields = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        return cls(**{**fields, "plan": ConfinementPlan(**fields["plan"])})


def run_supervisor(zygote: int, descriptors: Sequence[int]) -> Program:
    """Be one candidate's supervisor, to its end; returns in the candidate only, with its program."""
    line = socket.socket(fileno=descriptors[1])
    try:
        launch.die_with_parent(zygote)
        request = ForkRequest.read(descriptors[0])
        close_all_but(set(descriptors[1:]))
        lent = list(descriptors[2:])
        if request.holder is not None:
            join_namespaces(line, lent.pop(), request.holder)
            launch.die_with_parent(zygote)  # once more: a change of credentials may have cleared it
        parent = (
            os.getpid() if request.holder is None else 0
        )  # how one outside the namespace of processes looks
        ours, theirs = socket.socketpair()
        candidate = os.fork()
        if candidate == 0:
            ours.close()
            os.setsid()
            return confine_candidate(line, theirs, request, parent, lent)
        theirs.close()
    except (OSError, ValueError, HillclimbError) as error:
        report_failure(line, error)
    for descriptor in lent:
        os.close(descriptor)
    return await_exit(line, ours, candidate, alone=request.holder is not None)


def join_namespaces(line: socket.socket, status: int, holder: str) -> None:
    """Join the namespaces of the process that bubblewrap names, and show it to the judge."""
    first = bubblewrap_ready.read_init_pid(status)
    handle = os.pidfd_open(first)
    bubblewrap_ready.await_program(first, handle, holder)
    folder = os.open(f"/proc/{first}/root/proc", os.O_RDONLY | os.O_DIRECTORY)
    socket.send_fds(line, [json.dumps({"first": first}).encode()], [handle, folder])
    for descriptor in (status, handle, folder):
        os.close(descriptor)
    Namespaces.of(first).join()


def confine_candidate(
    line: socket.socket,
    supervisor: socket.socket,
    request: ForkRequest,
    parent: int,
    descriptors: Sequence[int],
) -> Program:
    """Confine this process, tell the judge, and name the program to run. Anything that fails ends it."""
    try:
        os.chdir(request.cwd)
        line, supervisor = install_descriptors((line, supervisor), request, descriptors)
        os.environ.clear()
        os.environ.update(request.plan.environment)
        listener = launch.confine(replace(request.plan, parent=parent))
        if listener is not None:
            socket.send_fds(supervisor, [b"l"], [listener])
            os.close(listener)
        supervisor.close()
        send_message(line, {"ready": True, "asks": listener is not None})
    except (OSError, ValueError, HillclimbError) as error:
        report_failure(line, error)
    line.close()
    return make_program(request.plan.argv, request.python_path)


def install_descriptors(
    kept: tuple[socket.socket, socket.socket], request: ForkRequest, received: Sequence[int]
) -> tuple[socket.socket, socket.socket]:
    """Give every descriptor its number, open /dev/null for the rest; the sockets kept, out of their way."""
    above = max((2, *request.descriptors)) + 1
    lifted = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in received]
    line, supervisor = (
        socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, above)) for end in kept
    )
    for descriptor in (*received, *(end.detach() for end in kept)):
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
    return line, supervisor


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor but the three standard ones."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def await_exit(line: socket.socket, settling: socket.socket, candidate: int, *, alone: bool) -> NoReturn:
    """Show the judge the candidate, wait for its end and say how it was. Without namespaces, end its group first."""
    handle = os.pidfd_open(candidate)
    with suppress(OSError):
        socket.send_fds(line, [json.dumps({"pid": candidate}).encode()], [handle])
    listener = receive_listener(settling)
    has_forged = serve_until_exit(line, handle, listener)
    if not alone:
        os.waitid(os.P_PID, candidate, os.WEXITED | os.WNOWAIT)
        end_group(candidate)
    code = os.waitstatus_to_exitcode(os.waitpid(candidate, 0)[1])
    if has_forged:
        code = -signal.SIGSYS
    send_message(line, {"exit": code} if code >= 0 else {"signal": -code})
    os._exit(0)


def receive_listener(settling: socket.socket) -> SeccompListener | None:
    """Wait until the candidate is confined; None where it has no listener, or has ended."""
    with settling:
        descriptors = socket.recv_fds(settling, 1, 1)[1]
    return SeccompListener(descriptors[0]) if descriptors else None


def serve_until_exit(line: socket.socket, handle: int, listener: SeccompListener | None) -> bool:
    """Answer the candidate and the judge until the candidate's end; whether that was for breaking the seal."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(line, select.POLLIN)
    if listener is not None:
        poller.register(listener.descriptor, select.POLLIN)
    is_sealed = False
    while True:
        ready = dict(poller.poll())
        if handle in ready:
            return False
        if line.fileno() in ready:
            is_sealed = True
            if not acknowledge_seal(line):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return False
        elif listener is not None and not ready.get(listener.descriptor, 0) & select.POLLIN:
            poller.unregister(listener.descriptor)  # nobody is left to ask
        elif listener is not None and not is_sealed:
            listener.allow()
        elif listener is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True


def acknowledge_seal(line: socket.socket) -> bool:
    """Confirm what the judge said. False where it has gone, or wants none of this candidate."""
    try:
        said = line.recv(len(SEAL))
    except OSError:
        return False
    if said == SEAL:
        send_message(line, {"sealed": True})
    return bool(said)


def end_group(leader: int) -> None:
    """SIGKILL a group until nobody of it is left, or for as long as the judge would wait."""
    deadline = time.monotonic() + REAP_SECONDS
    while True:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        if not process_table.group_pids(leader) or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def report_failure(line: socket.socket, error: Exception) -> NoReturn:
    """Tell the judge why there will be no candidate."""
    send_message(line, {"failed": f"{type(error).__name__}: {error}"[:4000]})
    os._exit(127)


def send_message(line: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the judge has gone, and we with it
        line.send(json.dumps(message).encode())
