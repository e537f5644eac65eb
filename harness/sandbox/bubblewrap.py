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
from subprocess import DEVNULL, Popen
from typing import Literal

from harness.errors import MachineError, SandboxError
from harness.sandbox import interpreter, landlock, machine, mounts, table
from harness.sandbox.confinement import LIMIT_WALLS, Confinement, Layout, Promise, limits, variables
from harness.sandbox.ground import Ground, Holder
from harness.sandbox.holding import START_SECONDS, first_process
from harness.sandbox.launch import Plan
from harness.sandbox.process import REAP_SECONDS, Born, Confined, Exit, handle, readable
from harness.sandbox.seccomp import border_program
from harness.sandbox.table import Residents, children

HELD_SECONDS = 7 * 86400.0
"""No candidate's process lives for a week. A holder whose judge was killed at the wrong moment ends then."""

INSIDE = Layout(workspace="/workspace", scratch="/scratch", lab="/lab")

NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")

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
        """Begin to raise the border around nothing, for a process that joins it; SandboxError where that fails at once.

        The namespace's first process only holds it open. Its folder in /proc is hidden and nothing inside can signal
        it, so that whoever joins finds no process to borrow that does not share its filters.
        """
        program, words = holder(), os.memfd_create("words")
        status, their_status = os.pipe()
        own = replace(
            confinement, descriptors=(), output=words
        )  # the candidate's output ends with the candidate
        try:
            process = self._start(program, own, _reporting(their_status, "--as-pid-1"), their_status)
            return Held(process, Holder(status, program[0]), words, self._plan(argv, confinement))
        except BaseException as error:
            os.close(status)
            os.close(words)
            if isinstance(error, OSError):
                raise SandboxError(f"bubblewrap could not be started: {error}") from error
            raise
        finally:
            os.close(their_status)

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
    def _begun(self, argv: Sequence[str], confinement: Confinement) -> Iterator[Begun]:
        """Start bubblewrap and its first process; ended again where the block fails."""
        try:
            begun = self._begin(argv, confinement)
            try:
                yield begun
            except BaseException:
                begun.abandon()
                raise
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error

    def _begin(self, argv: Sequence[str], confinement: Confinement) -> Begun:
        pipes = Pipes.open()
        theirs = pipes.their_status, pipes.their_go
        options = _reporting(pipes.their_status, "--block-fd", str(pipes.their_go))
        try:
            process = self._start(argv, confinement, options, *theirs)
        except BaseException:
            os.close(pipes.status)
            os.close(pipes.go)
            raise
        finally:
            pipes.close_theirs()
        try:
            outer = os.pidfd_open(process.pid)  # while it is certainly not collected yet
            try:
                return Begun(process, outer, self._enclose(confinement, pipes), pipes.status)
            except BaseException:
                os.close(outer)
                raise
        except BaseException:
            end_early(process.pid)
            process.wait()
            os.close(pipes.status)
            raise
        finally:
            os.close(pipes.go)

    def _start(
        self, argv: Sequence[str], confinement: Confinement, options: Sequence[str], *theirs: int
    ) -> Popen[bytes]:
        filter_file = _file_of(border_program(confinement.kind))
        try:
            return Popen(
                [self.program, *self._options(confinement, filter_file), *options, "--", *argv],
                pass_fds=(filter_file, *theirs, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd="/",
            )
        finally:
            os.close(filter_file)

    def _options(self, confinement: Confinement, filter_file: int) -> list[str]:
        """Every option, in the order bubblewrap acts on them."""
        options = [option for wall, given in WALLS.items() if wall not in self.without for option in given]
        if "seccomp" not in self.without:
            options += ["--seccomp", str(filter_file)]
        options += self._mounts(confinement)
        for name, value in {**confinement.environment, **variables(INSIDE)}.items():
            options += ["--setenv", name, value]
        return [*options, "--chdir", INSIDE.scratch]

    def _mounts(self, confinement: Confinement) -> list[str]:
        """The whole file tree of the candidate."""
        proc_one = ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
        shared_memory = TOOLS_BYTES if confinement.tools else SHARED_MEMORY_BYTES
        workspace = "--bind" if "read-only workspace" in self.without else "--ro-bind"
        steps: list[tuple[str, tuple[str, ...]]] = [
            ("", ("--size", str(TOOLS_BYTES), "--tmpfs", "/tmp") if confinement.tools else ()),
            ("", mounts.code()),  # after /tmp, where a checkout may lie
            ("", ("--ro-bind", str(interpreter.package()), f"{INSIDE.lab}/harness")),
            ("", (workspace, str(confinement.workspace.resolve()), INSIDE.workspace)),
            ("", ("--proc", "/proc")),
            ("masked proc", tuple(mounts.proc_controls())),
            ("hidden init", proc_one),
            ("", ("--ro-bind-try", machine.CPUS, machine.CPUS)),
            ("", ("--dev", "/dev", "--size", str(shared_memory), "--tmpfs", "/dev/shm")),
            ("", tuple(mounts.unchanged("--dev-bind", confinement.devices))),
            ("", tuple(mounts.unchanged("--ro-bind", map(str, confinement.readable)))),
            ("sealed dev", ("--remount-ro", "/dev")),
            ("scratch size", ("--size", str(confinement.scratch_bytes))),
            ("", ("--tmpfs", INSIDE.scratch)),
            ("sealed root", ("--remount-ro", "/")),
        ]
        return [option for wall, given in steps if wall not in self.without for option in given]

    def _enclose(self, confinement: Confinement, pipes: Pipes) -> int:
        """Set limits on the waiting first process of the namespace, and let it go on; its pid."""
        init = first_process(pipes.status)
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
        end_early(self.process.pid)
        self.process.wait()
        os.close(self.outer)
        os.close(self.status)


class Held(Ground):
    """Namespaces that a process of ours holds open, or soon will, for one that joins them."""

    def __init__(self, process: Popen[bytes], holder: Holder, words: int, plan: Plan) -> None:
        """Take over bubblewrap, the pipe it reports on, and the file that holds what it says."""
        self.layout = INSIDE
        self.plan = plan
        self.holder = holder
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._words = words
        self._first = 0
        self._init: int | None = None
        self._residents: Residents | None = None

    def settle(self, first: int, descriptors: list[int]) -> None:
        self._first = first
        self._init, folder = descriptors
        self._residents = Residents(folder)

    def complaint(self) -> str:
        return os.pread(self._words, 4096, 0).decode(errors="replace").strip()

    def company(self, pid: int) -> list[int]:
        return [] if self._residents is None else self._residents.company(pid)

    def scratch_used(self) -> int:
        return scratch_used(self._first)

    def end(self) -> None:
        """The kernel ends everything in the namespace with its first process, and that with bubblewrap."""
        if self._init is None:
            end_early(self._process.pid)
        for process in (self._init, self._outer):
            if process is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)

    def clear(self) -> None:
        self.end()
        try:
            for process in (self._init, self._outer):
                if process is not None and not readable(process, REAP_SECONDS):
                    raise MachineError(
                        f"processes of the sandbox of {self._first} outlived SIGKILL by {REAP_SECONDS:g} s"
                    )
            self._process.wait()
        finally:
            self._close()

    def _close(self) -> None:
        if self._residents is not None:
            self._residents.close()
        if self.holder is not None:
            os.close(self.holder.status)
        for descriptor in (self._init, self._outer, self._words):
            if descriptor is not None:
                os.close(descriptor)
        self._init = self.holder = None


class Enclosed(Confined):
    """A candidate in namespaces of its own: bwrap (ours) > init (first in the namespace) > candidate."""

    def __init__(self, begun: Begun, pid: int) -> None:
        super().__init__(INSIDE, begun.outer, Born(pid, handle(pid)))
        self._process = begun.process
        self._init = handle(begun.init)
        self._status = begun.status
        self._killed = False
        self._residents = _residents(begun.init)

    def scratch_used(self) -> int:
        """Bytes in the size-limited tmpfs; 0 once it is gone."""
        return scratch_used(self.pid)

    def _company(self) -> list[int]:
        return [] if self._residents is None else self._residents.company(self.pid)

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
        self._signal(signal.SIGKILL)
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def _release(self) -> None:
        super()._release()
        os.close(self._status)
        if self._residents is not None:
            self._residents.close()
        if self._init is not None:
            os.close(self._init)


def bubblewrap_rung(without: frozenset[str] = frozenset()) -> Bubblewrap:
    """Find the program; SandboxError when it is not installed."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap is not on the PATH; install bubblewrap")
    return Bubblewrap(program, without)


def holder() -> list[str]:
    """A program that is everywhere, reads nothing and outlasts every candidate."""
    sleep = shutil.which("sleep", path="/usr/bin:/bin")
    seconds = f"{HELD_SECONDS:.0f}"
    return [sleep, seconds] if sleep else [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]


def end_early(pid: int) -> None:
    """SIGKILL for a bubblewrap of ours, and what it started: until it has bound that to its own end, it would live on.

    Stopped first, it starts nothing while its children are looked up.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + REAP_SECONDS
        while table.state(pid) not in table.STILL and time.monotonic() < deadline:
            time.sleep(0.0001)
        for child in children(pid):
            os.kill(child, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def scratch_used(pid: int) -> int:
    """Bytes in the scratch folder of the namespace in which `pid` is; 0 once that is gone."""
    try:
        usage = os.statvfs(f"/proc/{pid}/root{INSIDE.scratch}")
    except OSError:
        return 0
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def _reporting(status: int, *options: str) -> list[str]:
    return ["--json-status-fd", str(status), *options]


def _residents(first: int) -> Residents | None:
    """Of the namespace of this first process; None once that has ended, and everything else with it."""
    try:
        return Residents.around(first)
    except FileNotFoundError:
        return None


def _file_of(data: bytes) -> int:
    """A descriptor that reads `data` from its start."""
    descriptor = os.memfd_create("filter")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


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
