"""Candidates forked from a process that has imported what they need, behind the same border as fresh ones.

From the spawn to the candidate's first line, medians of 9 and of 3 on two cores (torch 2.15, triton 3.9):

    imports           bubblewrap fresh, forked    Landlock fresh, forked
    numba             0.31 s, 0.024 s             0.34 s, 0.020 s
    torch and triton  1.66 s, 0.029 s             1.69 s, 0.035 s
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from subprocess import DEVNULL, Popen, TimeoutExpired
from types import TracebackType
from typing import Any, Literal, Protocol

from hillclimb.harness.errors import MachineError, SandboxError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.confinement import Confinement, RungGuarantees
from hillclimb.harness.sandbox.fork.namespace_plan import PreparedSandbox
from hillclimb.harness.sandbox.fork.program import is_forkable
from hillclimb.harness.sandbox.fork.supervisor import SEAL, ForkRequest
from hillclimb.harness.sandbox.fork.zygote import FORK, WARM
from hillclimb.harness.sandbox.process import (
    REAP_SECONDS,
    ExitStatus,
    SandboxedProcess,
    SpawnedProcess,
    is_readable,
)

IMPORT_SECONDS = 300.0
"""For torch from a cold disk; it takes 1.3 s from a warm one."""

START_SECONDS = 20.0
"""A fork and its confinement take 0.03 s; a machine that needs this long is at fault."""

MAX_MESSAGE_BYTES = 8192
MAX_MESSAGE_DESCRIPTORS = 2
"""Descriptors in one message of a supervisor's."""

STARTUP_VARIABLE_PATTERN = re.compile(
    r"PYTHON|OMP_|GOMP_|KMP_|OPENBLAS_|GOTO_|MKL_|BLIS_|MALLOC_|TRITON_INTERPRET$"
)
"""Variables that the interpreter and libraries read once, when they are loaded: a fork would come too late."""


class ForkableRung(Protocol):
    """A rung that can prepare a sandbox which a process joins later."""

    @property
    def name(self) -> Literal["bubblewrap", "landlock", "none"]: ...
    def guarantees(self) -> RungGuarantees: ...
    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess: ...
    def prepare(self, argv: Sequence[str], confinement: Confinement) -> PreparedSandbox: ...


class PreforkRung:
    """A rung whose candidates are forks of one zygote, which it owns: close it, or use it in a `with` block.

    Make it, and spawn from it, in threads that live as long as the candidates. What cannot be forked truly (another
    program than our interpreter with -m or -c, or a variable that is read at start and differs) is started afresh
    by the rung beneath.
    """

    def __init__(
        self, rung: ForkableRung, modules: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the zygote and import `modules` under `environment`; SandboxError where that fails.

        Modules must not touch CUDA, nor leave threads running. `environment` is for what they read at import, such
        as thread counts; a candidate whose own environment agrees is forked.
        """
        self.rung = rung
        self._environment = {**_environment(), **(environment or {})}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(list(modules))]
        with theirs:
            self._process = Popen(
                [sys.executable, "-P", "-m", "hillclimb.harness.sandbox.fork.zygote", *arguments],
                env=self._environment,
                pass_fds=(theirs.fileno(),),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        with ExitStack() as unless_warm:
            unless_warm.callback(self.close)
            self._await_warm()
            unless_warm.pop_all()

    @property
    def name(self) -> Literal["bubblewrap", "landlock", "none"]:
        return self.rung.name

    def guarantees(self) -> RungGuarantees:
        """As the rung beneath; of the zygote's own variables the names stay visible in /proc/self/environ."""
        promise = self.rung.guarantees()
        return replace(promise, variables=tuple({*promise.variables, *self._environment}))

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess:
        """Begin to fork a candidate, and return; SandboxError where that fails at once.

        Whoever needs the candidate waits for its start (`SandboxedProcess`), and learns there where it fails later: so
        those of a pair can be born at the same time.
        """
        if not is_forkable(argv) or not self._agrees(confinement.environment):
            return self.rung.spawn(argv, confinement)
        prepared = self.rung.prepare(argv, confinement)
        with ExitStack() as unless_forked:
            unless_forked.callback(prepared.clean_up)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            unless_forked.callback(ours.close)
            with theirs:
                self._ask(prepared, confinement, theirs)
            forked = ForkedProcess(prepared, ours)
            unless_forked.pop_all()
        return forked

    def close(self) -> None:
        """End the zygote; every candidate still alive ends with it."""
        self._control.close()
        self._process.kill()
        with suppress(TimeoutExpired):
            self._process.wait(REAP_SECONDS)

    def __enter__(self) -> PreforkRung:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _await_warm(self) -> None:
        if not is_readable(self._control.fileno(), IMPORT_SECONDS):
            raise SandboxError(f"the zygote has not imported its modules after {IMPORT_SECONDS:g} s")
        said = self._control.recv(MAX_MESSAGE_BYTES)
        if said != WARM:
            why = said.decode(errors="replace") or "it ended without a word"
            raise SandboxError(f"the zygote could not be prepared: {why}")

    def _agrees(self, environment: Mapping[str, str]) -> bool:
        """Whether nothing that is read at start differs from what the zygote was started with."""
        return all(
            self._environment.get(name) == value
            for name, value in environment.items()
            if STARTUP_VARIABLE_PATTERN.match(name)
        )

    def _ask(self, prepared: PreparedSandbox, confinement: Confinement, line: socket.socket) -> None:
        request = _request(prepared, confinement)
        output = () if confinement.output is None else (confinement.output,)
        joined = () if prepared.holder is None else (prepared.holder.status,)
        try:
            socket.send_fds(
                self._control, [FORK], [request, line.fileno(), *confinement.descriptors, *output, *joined]
            )
        except OSError as error:
            raise SandboxError(f"the zygote is gone: {error}") from error
        finally:
            os.close(request)


class ForkedProcess(SandboxedProcess):
    """A candidate forked from a zygote. Its supervisor, outside the border, says how it started and ended."""

    def __init__(self, prepared: PreparedSandbox, line: socket.socket) -> None:
        """Take over its prepared sandbox, and the line to its supervisor."""
        super().__init__(prepared.layout, os.dup(line.fileno()))
        self._prepared = prepared
        self._line = line
        self._asks = False
        self._last: dict[str, Any] | None = None
        self._killed = False

    def send_sigkill(self) -> None:
        """As every candidate's; one that has gone with its zygote counts as killed."""
        self._killed = True
        super().send_sigkill()

    def wait(self, seconds: float) -> ExitStatus | None:
        if self._failure is None:
            self._birth()
        return super().wait(seconds)

    def seal(self) -> bool:
        self._birth()
        if not self._asks or self.poll() is not None:
            return self._asks
        with suppress(OSError):  # its supervisor has gone, as `poll` will tell
            self._line.send(SEAL)
        if not is_readable(self._line.fileno(), START_SECONDS):
            raise MachineError(f"the supervisor of {self.pid} has not sealed it in {START_SECONDS:g} s")
        message = _heard(self._line)
        if message != {"sealed": True}:
            self._last = message or {}
        return True

    def scratch_used_bytes(self) -> int:
        self._birth()
        return 0 if self._exit else self._prepared.scratch_used_bytes()

    def _company(self) -> list[int]:
        return self._prepared.other_pids(self.pid)

    def _birth(self) -> SpawnedProcess:
        if self._failure is not None:
            raise self._failure
        if self._born is None:
            with ExitStack() as unless_born:
                unless_born.push(self._note_failure)
                self._born = self._await_birth()
        return self._born

    def _await_birth(self) -> SpawnedProcess:
        """Hear its supervisor and itself out, until it is there and confined."""
        deadline = time.monotonic() + START_SECONDS
        born, is_ready = None, False
        while born is None or not is_ready:
            if not is_readable(self._line.fileno(), deadline - time.monotonic()):
                raise SandboxError(f"the candidate's fork was not ready after {START_SECONDS:g} s")
            message, descriptors = _received(self._line)
            if "first" in message:
                self._prepared.attach_holder(int(message["first"]), descriptors)
            elif "pid" in message:
                born = self._born = SpawnedProcess(int(message["pid"]), descriptors[0])
            elif "ready" in message:
                is_ready, self._asks = True, bool(message["asks"])
            else:
                raise SandboxError(
                    f"the fork could not be confined: {message.get('failed', message)}{self._complaint()}"
                )
        return born

    def _complaint(self) -> str:
        said = self._prepared.error_output()
        return f": {said}" if said else ""

    def _note_failure(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Give everything back of a candidate that was not born."""
        if error is None:
            return
        self._failure = error if isinstance(error, MachineError) else SandboxError(f"not born: {error!r}")
        try:
            self._prepared.clean_up()
        finally:
            self._release()

    def _finished(self) -> bool:
        self._birth()
        return self._last is not None or is_readable(self._line.fileno(), 0)

    def _outcome(self) -> ExitStatus:
        message = _heard(self._line) if self._last is None else self._last
        born = self._birth()
        if born.pidfd is not None and not is_readable(born.pidfd, REAP_SECONDS):
            raise MachineError(f"process {self.pid} outlives its supervisor; restart the run")
        self._prepared.clean_up()
        if not message and self._killed:  # together with its supervisor
            return ExitStatus(None, signal.SIGKILL)
        if not message:
            raise SandboxError("the zygote, or the candidate's supervisor, was killed")
        return ExitStatus(message.get("exit"), message.get("signal"))

    def _end(self) -> None:
        self._signal(signal.SIGKILL)
        self._prepared.send_sigkill()

    def _release(self) -> None:
        super()._release()
        self._line.close()


def _environment() -> dict[str, str]:
    """The zygote's own: how to find programs, libraries and the lab's package, and nothing of the judge's."""
    return {
        **interpreter.loader_variables(),
        "HOME": "/",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": str(interpreter.search_folder()),
        "PYTHONSAFEPATH": "1",
        "PYTHONWARNINGS": "ignore:Could not obtain multiprocessing lock",
    }


def _request(prepared: PreparedSandbox, confinement: Confinement) -> int:
    """A memory file with the request: whoever is not meant to read it need not."""
    request = ForkRequest(
        plan=replace(prepared.plan, has_listener=prepared.plan.seccomp is not None),
        cwd=prepared.layout.scratch,
        python_path=prepared.layout.python_path,
        descriptors=confinement.descriptors,
        has_output=confinement.output is not None,
        holder=None if prepared.holder is None else prepared.holder.program,
    )
    descriptor = os.memfd_create("request")
    with open(os.dup(descriptor), "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(request.to_json().encode())
    return descriptor


def _received(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One message, and the descriptors that came with it."""
    data, descriptors, _, _ = socket.recv_fds(line, MAX_MESSAGE_BYTES, MAX_MESSAGE_DESCRIPTORS)
    if not data:
        return {"failed": "the zygote or the candidate's supervisor is gone"}, []
    return dict(json.loads(data)), descriptors


def _heard(line: socket.socket) -> dict[str, Any] | None:
    """The supervisor's last word; None where it was killed first."""
    try:
        data = line.recv(MAX_MESSAGE_BYTES)
    except OSError:
        return None
    return dict(json.loads(data)) if data else None
