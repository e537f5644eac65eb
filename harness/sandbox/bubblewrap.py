"""The strongest rung: bubblewrap with every namespace, an empty root, masked /proc, seccomp and limits.

The recipe is data, wall by wall, so that tests can take any wall out and see the canary notice.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Literal

from harness.errors import MachineError, SandboxError
from harness.sandbox import interpreter, landlock, machine, mounts
from harness.sandbox.confinement import LIMIT_WALLS, Confinement, Layout, Promise, limits, variables
from harness.sandbox.ground import Ground, Namespaces
from harness.sandbox.launch import Plan
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

TOOLS_BYTES = 256 << 20
"""For tools: /dev/shm, where the two halves of a sanitizer share their records, and /tmp, where they meet."""


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
        with self._begun(argv, confinement) as begun:
            return Enclosed(begun, _candidate_pid(begun.process, begun.init))

    def ground(self, argv: Sequence[str], confinement: Confinement) -> Held:
        """Raise the border around nothing, for a process that joins it; MachineError where it cannot be raised.

        The namespace's first process only holds it open. Its folder in /proc is hidden and nothing inside can signal
        it, so that whoever joins finds no process to borrow that does not share its filters.
        """
        program, words = holder(), os.memfd_create("words")
        own = replace(
            confinement, descriptors=(), output=words
        )  # the candidate's output ends with the candidate
        try:
            with self._begun(program, own, "--as-pid-1") as begun:
                _await_program(begun, program)
                return Held(begun, self._plan(argv, confinement), Namespaces.of(begun.init))
        except SandboxError as error:
            said = os.pread(words, 4096, 0).decode(errors="replace").strip()
            raise SandboxError(f"{error}: {said}" if said else str(error)) from error
        finally:
            os.close(words)

    def _plan(self, argv: Sequence[str], confinement: Confinement) -> Plan:
        """What a process that joins has to do to itself; bubblewrap did it to the holder."""
        ours = dict(os.environ) if "environment" in self.without else {}
        return Plan(
            limits=list(self._limits(confinement).items()),
            uid=None,
            capabilities=[],
            parent=0,
            read=[],
            write=["/"],
            landlock=0 if "own tree" in self.without else landlock.abi(),
            seccomp=None if "seccomp" in self.without else confinement.kind,
            environment={**ours, **confinement.environment, **variables(INSIDE)},
            argv=list(argv),
            drop="capabilities" not in self.without,
        )

    @contextmanager
    def _begun(self, argv: Sequence[str], confinement: Confinement, *options: str) -> Iterator[Begun]:
        """Start bubblewrap and its first process; ended again where the block fails."""
        try:
            begun = self._begin(argv, confinement, options)
            try:
                yield begun
            except BaseException:
                begun.abandon()
                raise
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error

    def _begin(self, argv: Sequence[str], confinement: Confinement, options: Sequence[str]) -> Begun:
        pipes = Pipes.open()
        try:
            process = self._start(argv, confinement, pipes, options)
        except BaseException:
            os.close(pipes.status)
            os.close(pipes.go)
            raise
        finally:
            pipes.close_theirs()
        try:
            outer = os.pidfd_open(process.pid)  # while it is certainly not collected yet
            try:
                return Begun(process, outer, self._enclose(process, confinement, pipes), pipes.status)
            except BaseException:
                os.close(outer)
                raise
        except BaseException:
            process.kill()
            process.wait()
            os.close(pipes.status)
            raise
        finally:
            os.close(pipes.go)

    def _start(
        self, argv: Sequence[str], confinement: Confinement, pipes: Pipes, options: Sequence[str]
    ) -> Popen[bytes]:
        filter_file = _file_of(border_program(confinement.kind))
        theirs = [filter_file, pipes.their_status, pipes.their_go]
        try:
            return Popen(
                [self.program, *self._options(confinement, *theirs), *options, "--", *argv],
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
        shared_memory = TOOLS_BYTES if confinement.tools else SHARED_MEMORY_BYTES
        workspace = "--bind" if "read-only workspace" in self.without else "--ro-bind"
        steps: list[tuple[str, tuple[str, ...]]] = [
            ("", mounts.code()),
            ("", ("--ro-bind", str(interpreter.package()), f"{INSIDE.lab}/harness")),
            ("", (workspace, str(confinement.workspace.resolve()), INSIDE.workspace)),
            ("", ("--proc", "/proc")),
            ("masked proc", tuple(mounts.proc_controls())),
            ("hidden init", proc_one),
            ("", ("--ro-bind-try", machine.CPUS, machine.CPUS)),
            ("", ("--dev", "/dev", "--size", str(shared_memory), "--tmpfs", "/dev/shm")),
            ("", ("--size", str(TOOLS_BYTES), "--tmpfs", "/tmp") if confinement.tools else ()),
            ("", tuple(mounts.unchanged("--dev-bind", confinement.devices))),
            ("", tuple(mounts.unchanged("--ro-bind", map(str, confinement.readable)))),
            ("sealed dev", ("--remount-ro", "/dev")),
            ("scratch size", ("--size", str(confinement.scratch_bytes))),
            ("", ("--tmpfs", INSIDE.scratch)),
            ("sealed root", ("--remount-ro", "/")),
        ]
        return [option for wall, given in steps if wall not in self.without for option in given]

    def _enclose(self, process: Popen[bytes], confinement: Confinement, pipes: Pipes) -> int:
        """Set limits on the waiting first process of the namespace, and let it go on; its pid."""
        init = _init_pid(pipes.status)
        if init is None:
            raise SandboxError(
                f"bubblewrap ended with status {process.wait()} before it started the candidate"
            )
        for number, value in self._limits(confinement).items():
            resource.prlimit(init, number, (value, value))
        os.write(pipes.go, b"g")
        return init

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


@dataclass(frozen=True)
class Begun:
    """bubblewrap, ours to reap, and the first process of its namespaces."""

    process: Popen[bytes]
    outer: int
    """Its pidfd."""
    init: int
    status: int

    def abandon(self) -> None:
        """End what nobody will use."""
        self.process.kill()
        self.process.wait()
        os.close(self.outer)
        os.close(self.status)


class Held(Ground):
    """Namespaces that a process of ours holds open for one that joins them."""

    def __init__(self, begun: Begun, plan: Plan, namespaces: Namespaces) -> None:
        self.layout = INSIDE
        self.plan = plan
        self.namespaces = namespaces
        self._process = begun.process
        self._first = begun.init
        self._init = handle(begun.init)
        os.close(begun.outer)
        os.close(begun.status)

    def scratch_used(self) -> int:
        return scratch_used(self._first)

    def roots(self) -> set[int]:
        return {self._first}

    def end(self) -> None:
        """The kernel ends everything in the namespace with its first process."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def clear(self) -> None:
        self.end()
        if self.namespaces is not None:
            self.namespaces.close()
            self.namespaces = None
        init, self._init = self._init, None
        try:
            if init is not None and not readable(init, REAP_SECONDS):
                raise MachineError(
                    f"processes of the sandbox of {self._first} outlived SIGKILL by {REAP_SECONDS:g} s"
                )
            self._process.wait(REAP_SECONDS)
        except TimeoutExpired as error:
            raise MachineError(f"bubblewrap outlived its sandbox by {REAP_SECONDS:g} s") from error
        finally:
            if init is not None:
                os.close(init)


class Enclosed(Confined):
    """A candidate in namespaces of its own: bwrap (ours) > init (first in the namespace) > candidate."""

    def __init__(self, begun: Begun, pid: int) -> None:
        super().__init__(pid, INSIDE, handle(pid), begun.outer)
        self._process = begun.process
        self._first = begun.init
        self._init = handle(begun.init)
        self._status = begun.status
        self._killed = False

    def scratch_used(self) -> int:
        """Bytes in the size-limited tmpfs; 0 once it is gone."""
        return scratch_used(self.pid)

    def _roots(self) -> set[int]:
        return {self.pid, self._first}

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


def holder() -> list[str]:
    """A program that is everywhere, reads nothing and never ends."""
    sleep = shutil.which("sleep", path="/usr/bin:/bin")
    forever = "2147483647"  # `infinity` is GNU's alone
    return [sleep, forever] if sleep else [sys.executable, "-S", "-c", f"import time; time.sleep({forever})"]


def scratch_used(pid: int) -> int:
    """Bytes in the scratch folder of the namespace in which `pid` is; 0 once that is gone."""
    try:
        usage = os.statvfs(f"/proc/{pid}/root{INSIDE.scratch}")
    except OSError:
        return 0
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def _await_program(begun: Begun, argv: Sequence[str]) -> None:
    """Wait until the namespace's first process has become this program: from then on its root folder is final."""
    name = Path(argv[0]).name[:15]  # as much as the kernel keeps
    deadline = time.monotonic() + START_SECONDS
    while Path(f"/proc/{begun.init}/comm").read_text().strip() != name:
        if begun.process.poll() is not None:
            raise SandboxError(
                f"bubblewrap ended with status {begun.process.returncode} before {argv[0]} ran"
            )
        if time.monotonic() > deadline:
            raise MachineError(
                f"bubblewrap started nothing in {START_SECONDS:g} s; is the machine overloaded?"
            )
        time.sleep(0.0005)


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
