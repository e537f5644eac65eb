"""The strongest rung: bubblewrap with every namespace, an empty root, masked /proc, seccomp and limits.

The recipe is data, wall by wall, so that tests can take any wall out and see the canary notice.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, Popen
from typing import Literal

from harness.errors import MachineError, SandboxError
from harness.sandbox import interpreter, mounts
from harness.sandbox.confinement import LIMIT_WALLS, Confinement, Layout, Promise, limits, variables
from harness.sandbox.process import REAP_SECONDS, Confined, Exit, children, handle, readable
from harness.sandbox.seccomp import border_program

INSIDE = Layout(workspace="/workspace", scratch="/scratch", lab="/lab")

NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")

START_SECONDS = 20.0
"""Setting the namespaces up takes 10 ms; a machine that needs this long is at fault."""

WALLS: Mapping[str, tuple[str, ...]] = {
    "user namespace": ("--unshare-user", "--disable-userns"),
    "process namespace": ("--unshare-pid",),
    "network namespace": ("--unshare-net",),
    "ipc namespace": ("--unshare-ipc",),
    "host name": ("--unshare-uts", "--hostname", "sandbox"),
    "cgroup namespace": ("--unshare-cgroup-try",),
    "capabilities": ("--cap-drop", "ALL"),
    "environment": ("--clearenv",),
    "session": ("--new-session",),
    "life": ("--die-with-parent",),
}
"""Walls that are plain options."""

MOUNTED_WALLS = (
    "masked proc",
    "hidden init",
    "sealed root",
    "sealed dev",
    "read-only workspace",
    "scratch size",
)
LATER_WALLS = ("seccomp", *LIMIT_WALLS)

SHARED_MEMORY_BYTES = 1 << 20
"""/dev/shm holds the semaphore numba makes, and no more."""


@dataclass(frozen=True)
class Bubblewrap:
    """Spawns candidates through the bwrap program."""

    program: str
    without: frozenset[str] = frozenset()
    """Walls left out; for tests of the canary only."""
    name: Literal["bubblewrap"] = "bubblewrap"

    def promise(self) -> Promise:
        """Nothing shared, nothing held, everything bounded."""
        return Promise(
            NAMESPACES, capabilities=0, scratch_is_bounded=True, variables=tuple(variables(INSIDE))
        )

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined:
        """Start `argv` inside; returns once it exists. MachineError when the border cannot be raised.

        Call from a thread that lives as long as the candidate: the kernel ends it with the thread that made it.
        """
        try:
            return self._spawn(argv, confinement)
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error

    def _spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined:
        pipes = Pipes.open()
        try:
            process = self._start(argv, confinement, pipes)
        except BaseException:
            os.close(pipes.status)
            os.close(pipes.go)
            raise
        finally:
            pipes.close_theirs()
        try:
            return self._enclose(process, confinement, pipes)
        except BaseException:
            process.kill()
            process.wait()
            os.close(pipes.status)
            raise
        finally:
            os.close(pipes.go)

    def _start(self, argv: Sequence[str], confinement: Confinement, pipes: Pipes) -> Popen[bytes]:
        filter_file = _file_of(border_program())
        theirs = [filter_file, pipes.their_status, pipes.their_go]
        try:
            return Popen(
                [self.program, *self._options(confinement, *theirs), "--", *argv],
                pass_fds=(*theirs, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd="/",
            )
        finally:
            os.close(filter_file)

    def _options(self, confinement: Confinement, filter_file: int, status: int, go: int) -> list[str]:
        """Every option, in the order bubblewrap acts on them."""
        options = [option for wall, given in WALLS.items() if wall not in self.without for option in given]
        if "seccomp" not in self.without:
            options += ["--seccomp", str(filter_file)]
        options += self._mounts(confinement)
        for name, value in {**confinement.environment, **variables(INSIDE)}.items():
            options += ["--setenv", name, value]
        return [*options, "--chdir", INSIDE.scratch, "--json-status-fd", str(status), "--block-fd", str(go)]

    def _mounts(self, confinement: Confinement) -> list[str]:
        """The whole file tree of the candidate."""
        proc_one = ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
        workspace = "--bind" if "read-only workspace" in self.without else "--ro-bind"
        steps: list[tuple[str, tuple[str, ...]]] = [
            ("", tuple(mounts.code())),
            ("", ("--ro-bind", str(interpreter.package()), f"{INSIDE.lab}/harness")),
            ("", (workspace, str(confinement.workspace.resolve()), INSIDE.workspace)),
            ("", ("--proc", "/proc")),
            ("masked proc", tuple(mounts.proc_controls())),
            ("hidden init", proc_one),
            ("", ("--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu")),
            ("", ("--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")),
            ("sealed dev", ("--remount-ro", "/dev")),
            ("scratch size", ("--size", str(confinement.scratch_bytes))),
            ("", ("--tmpfs", INSIDE.scratch)),
            ("sealed root", ("--remount-ro", "/")),
        ]
        return [option for wall, given in steps if wall not in self.without for option in given]

    def _enclose(self, process: Popen[bytes], confinement: Confinement, pipes: Pipes) -> Confined:
        """Set limits on the waiting first process of the namespace, let it go on, and find the candidate."""
        init = _init_pid(pipes.status)
        if init is None:
            raise SandboxError(
                f"bubblewrap ended with status {process.wait()} before it started the candidate"
            )
        for number, value in self._limits(confinement).items():
            resource.prlimit(init, number, (value, value))
        os.write(pipes.go, b"g")
        return Enclosed(process, init, _candidate_pid(process, init), pipes.status)

    def _limits(self, confinement: Confinement) -> dict[int, int]:
        dropped = {LIMIT_WALLS.get(wall) for wall in self.without}
        return {number: value for number, value in limits(confinement).items() if number not in dropped}


@dataclass(frozen=True)
class Pipes:
    """Two pipes: bubblewrap's status to us, and our word to go on."""

    status: int
    their_status: int
    their_go: int
    go: int

    @classmethod
    def open(cls) -> Pipes:
        """Make both."""
        return cls(*os.pipe(), *os.pipe())

    def close_theirs(self) -> None:
        """Close the ends that bubblewrap has inherited."""
        os.close(self.their_status)
        os.close(self.their_go)


class Enclosed(Confined):
    """A candidate in namespaces of its own: bwrap (ours) > init (first in the namespace) > candidate."""

    def __init__(self, process: Popen[bytes], init: int, pid: int, status: int) -> None:
        super().__init__(process, pid, INSIDE)
        self._init = handle(init)
        self._status = status
        self._killed = False

    def scratch_used(self) -> int:
        """Bytes in the size-limited tmpfs; 0 once it is gone."""
        try:
            usage = os.statvfs(f"/proc/{self.pid}/root{INSIDE.scratch}")
        except OSError:
            return 0
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize

    def _finished(self) -> bool:
        return self._process.poll() is not None

    def _outcome(self) -> Exit:
        """Read the status bubblewrap wrote. In it 128 + n stands for signal n, and for that exit status too."""
        if self._init is not None and not readable(self._init, REAP_SECONDS):
            raise MachineError(
                f"processes of the sandbox of {self.pid} are still there after {REAP_SECONDS:g} s"
            )
        code = _exit_code(_drain(self._status))
        if code is None and self._killed:  # before it came to the candidate's exec
            return Exit(None, signal.SIGKILL)
        if code is None:
            raise SandboxError(
                f"bubblewrap could not start the candidate (status {self._process.returncode}); "
                "its own words are on the candidate's output"
            )
        return Exit(None, code - 128) if 128 < code <= 128 + signal.NSIG else Exit(code, None)

    def _end(self) -> None:
        self._killed = True
        for process in (self._handle, self._init):
            if process is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)

    def _release(self) -> None:
        super()._release()
        os.close(self._status)
        if self._init is not None:
            os.close(self._init)


def bubblewrap_rung(without: frozenset[str] = frozenset()) -> Bubblewrap:
    """Find the program; SandboxError when it is not installed."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap is not on the PATH; install bubblewrap")
    return Bubblewrap(program, without)


def _file_of(data: bytes) -> int:
    """A descriptor that reads `data` from its start."""
    descriptor = os.memfd_create("filter")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _init_pid(status: int) -> int | None:
    """Read the host pid of the namespace's first process; None when bubblewrap gave up."""
    text = b""
    deadline = time.monotonic() + START_SECONDS
    while b"\n" not in text:
        if not readable(status, deadline - time.monotonic()):
            raise MachineError(f"bubblewrap said nothing for {START_SECONDS:g} s; is the machine overloaded?")
        piece = os.read(status, 4096)
        if not piece:
            return None
        text += piece
    return int(json.loads(text.splitlines()[0])["child-pid"])


def _candidate_pid(process: Popen[bytes], init: int) -> int:
    """Wait for the one child of the namespace's first process; that process itself where it is gone already."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if born := children(init):
            return born[0]
        if time.monotonic() > deadline:
            raise MachineError(
                f"bubblewrap started nothing in {START_SECONDS:g} s; is the machine overloaded?"
            )
        time.sleep(0.0005)
    return init


def _drain(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        return os.read(descriptor, 65536)
    return b""


def _exit_code(status: bytes) -> int | None:
    for line in status.splitlines():
        code = json.loads(line).get("exit-code")
        if code is not None:
            return int(code)
    return None
