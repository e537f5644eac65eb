"""The strongest rung: bubblewrap with every namespace, an empty root, masked /proc, seccomp and limits.

The recipe is data, wall by wall, so that tests can take any wall out and see the canary notice.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from subprocess import DEVNULL, Popen
from typing import Literal

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.confinement import (
    LIMIT_WALLS,
    Confinement,
    RungGuarantees,
    base_variables,
    resource_limits,
)
from hillclimb.harness.sandbox.fork.bubblewrap_ready import read_init_pid
from hillclimb.harness.sandbox.fork.namespace_plan import Holder
from hillclimb.harness.sandbox.kernel import landlock, readable_proc
from hillclimb.harness.sandbox.kernel.seccomp import stage_one_program
from hillclimb.harness.sandbox.launch import ConfinementPlan
from hillclimb.harness.sandbox.process import SandboxedProcess
from hillclimb.harness.sandbox.rungs import mounts
from hillclimb.harness.sandbox.rungs.bubblewrap_process import (
    INSIDE,
    NAMESPACES,
    BubblewrapProcess,
    Pipes,
    PreparedNamespaces,
    StartedBubblewrap,
    _candidate_pid,
    _reporting,
    holder_command,
    kill_bubblewrap,
)

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
class BubblewrapRung:
    """Spawns candidates through the bwrap program."""

    program: str
    without: frozenset[str] = frozenset()
    """Walls left out; for tests of the canary only."""
    name: Literal["bubblewrap"] = "bubblewrap"

    def guarantees(self) -> RungGuarantees:
        """Nothing shared, nothing held, everything bounded."""
        return RungGuarantees(
            NAMESPACES, capabilities=0, scratch_is_bounded=True, variables=tuple(base_variables(INSIDE))
        )

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess:
        """Start `argv` inside; returns once it exists, and ends with us. MachineError when the border cannot be raised.

        Call from a thread that lives as long as the candidate: the kernel ends it with the thread that made it.
        """
        with self._begun(argv, confinement) as begun:
            pid = _candidate_pid(begun.process, begun.init_pid, is_filtered="seccomp" not in self.without)
            return BubblewrapProcess(begun, pid)

    def prepare(self, argv: Sequence[str], confinement: Confinement) -> PreparedNamespaces:
        """Begin to raise the border around nothing, for a process that joins it; SandboxError where that fails at once.

        The namespace's first process only holds it open. Its folder in /proc is hidden and nothing inside can signal
        it, so that whoever joins finds no process to borrow that does not share its filters.
        """
        program, words = holder_command(), os.memfd_create("words")
        status, their_status = os.pipe()
        own = replace(
            confinement, descriptors=(), output=words
        )  # the candidate's output ends with the candidate
        with ExitStack() as always, ExitStack() as unless_held:
            always.callback(os.close, their_status)
            unless_held.callback(os.close, words)
            unless_held.callback(os.close, status)
            try:
                process = self._start(program, own, _reporting(their_status, "--as-pid-1"), their_status)
                held = PreparedNamespaces(
                    process, Holder(status, program[0]), words, self._plan(argv, confinement)
                )
            except OSError as error:
                raise SandboxError(f"bubblewrap could not be started: {error}") from error
            unless_held.pop_all()
        return held

    def _plan(self, argv: Sequence[str], confinement: Confinement) -> ConfinementPlan:
        """What a process that joins has to do to itself; bubblewrap did it to the holder."""
        ours = dict(os.environ) if "environment" in self.without else {}
        return ConfinementPlan(
            limits=list(self._limits(confinement).items()),
            uid=None,
            capabilities=[],
            parent=0,
            read=[],
            write=["/"],
            landlock=0 if "own tree" in self.without else landlock.abi_version(),
            seccomp=None if "seccomp" in self.without else confinement.kind,
            environment={**ours, **confinement.environment, **base_variables(INSIDE)},
            argv=list(argv),
            drops_capabilities="capabilities" not in self.without,
        )

    @contextmanager
    def _begun(self, argv: Sequence[str], confinement: Confinement) -> Iterator[StartedBubblewrap]:
        """Start bubblewrap and its first process; ended again where the block fails."""
        try:
            with ExitStack() as unless_taken:
                begun = self._begin(argv, confinement)
                unless_taken.callback(begun.abandon)
                yield begun
                unless_taken.pop_all()
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error

    def _begin(self, argv: Sequence[str], confinement: Confinement) -> StartedBubblewrap:
        pipes = Pipes.open()
        options = _reporting(pipes.their_status, "--block-fd", str(pipes.their_go))
        with ExitStack() as always, ExitStack() as unless_begun:
            always.callback(os.close, pipes.go)
            unless_begun.callback(os.close, pipes.status)
            try:
                process = self._start(argv, confinement, options, pipes.their_status, pipes.their_go)
            finally:
                pipes.close_theirs()
            unless_begun.callback(process.wait)
            unless_begun.callback(kill_bubblewrap, process.pid)
            outer = os.pidfd_open(process.pid)  # while it is certainly not collected yet
            unless_begun.callback(os.close, outer)
            begun = StartedBubblewrap(process, outer, self._enclose(confinement, pipes), pipes.status)
            unless_begun.pop_all()
        return begun

    def _start(
        self, argv: Sequence[str], confinement: Confinement, options: Sequence[str], *theirs: int
    ) -> Popen[bytes]:
        filter_file = _file_of(stage_one_program(confinement.kind))
        try:
            return Popen(
                [self.program, *self._options(confinement, filter_file), *options, "--", *argv],
                pass_fds=(filter_file, *theirs, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd="/",
                process_group=0,  # Ctrl-C is for whoever holds it
            )
        finally:
            os.close(filter_file)

    def _options(self, confinement: Confinement, filter_file: int) -> list[str]:
        """Every option, in the order bubblewrap acts on them."""
        options = [option for wall, given in WALLS.items() if wall not in self.without for option in given]
        if "seccomp" not in self.without:
            options += ["--seccomp", str(filter_file)]
        options += self._mounts(confinement)
        for name, value in {**confinement.environment, **base_variables(INSIDE)}.items():
            options += ["--setenv", name, value]
        return [*options, "--chdir", INSIDE.scratch]

    def _mounts(self, confinement: Confinement) -> list[str]:
        """The whole file tree of the candidate."""
        proc_one = ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
        shared_memory = TOOLS_BYTES if confinement.tools else SHARED_MEMORY_BYTES
        workspace = "--bind" if "read-only workspace" in self.without else "--ro-bind"
        steps: list[tuple[str, tuple[str, ...]]] = [
            ("", ("--size", str(TOOLS_BYTES), "--tmpfs", "/tmp") if confinement.tools else ()),
            ("", mounts.interpreter_options()),  # after /tmp, where a checkout may lie
            (
                "",
                (
                    "--ro-bind",
                    str(interpreter.package_init_file()),
                    f"{INSIDE.python_path}/hillclimb/__init__.py",
                ),
            ),
            ("", ("--ro-bind", str(interpreter.harness_folder()), f"{INSIDE.python_path}/hillclimb/harness")),
            ("", (workspace, str(confinement.workspace.resolve()), INSIDE.workspace)),
            ("", tuple(mounts.empty_folders(confinement.workspace, INSIDE.workspace, confinement.hidden))),
            ("", ("--proc", "/proc")),
            ("masked proc", tuple(mounts.proc_controls())),
            ("hidden init", proc_one),
            ("", ("--ro-bind-try", readable_proc.CPUS, readable_proc.CPUS)),
            ("", ("--dev", "/dev", "--size", str(shared_memory), "--tmpfs", "/dev/shm")),
            ("", tuple(mounts.same_path_options("--dev-bind", confinement.devices))),
            ("", tuple(mounts.same_path_options("--ro-bind", map(str, confinement.readable)))),
            ("sealed dev", ("--remount-ro", "/dev")),
            ("scratch size", ("--size", str(confinement.scratch_bytes))),
            ("", ("--tmpfs", INSIDE.scratch)),
            ("sealed root", ("--remount-ro", "/")),
        ]
        return [option for wall, given in steps if wall not in self.without for option in given]

    def _enclose(self, confinement: Confinement, pipes: Pipes) -> int:
        """Set limits on the waiting first process of the namespace, and let it go on; its pid."""
        init = read_init_pid(pipes.status)
        for number, value in self._limits(confinement).items():
            resource.prlimit(init, number, (value, value))
        os.write(pipes.go, b"g")
        return init

    def _limits(self, confinement: Confinement) -> dict[int, int]:
        dropped = {LIMIT_WALLS.get(wall) for wall in self.without}
        return {
            number: value for number, value in resource_limits(confinement).items() if number not in dropped
        }


def bubblewrap_rung(without: frozenset[str] = frozenset()) -> BubblewrapRung:
    """Find the program; SandboxError when it is not installed."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap is not on the PATH; install bubblewrap")
    return BubblewrapRung(program, without)


def _file_of(data: bytes) -> int:
    """A descriptor that reads `data` from its start."""
    descriptor = os.memfd_create("filter")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
