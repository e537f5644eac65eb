"""The rungs without namespaces: Landlock with a user of its own, and, for trusted workspaces, hardly a border.

Both start through `launch`, which confines itself and then becomes the candidate.
"""

from __future__ import annotations

import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Literal

from harness.errors import MachineError, SandboxError
from harness.sandbox import interpreter, landlock, machine, privileges, table
from harness.sandbox.confinement import LIMIT_WALLS, Confinement, Layout, Promise, limits, variables
from harness.sandbox.folder import Folder, roomy_place
from harness.sandbox.ground import Ground
from harness.sandbox.launch import Plan
from harness.sandbox.process import REAP_SECONDS, Born, Confined, Exit, handle, readable
from harness.sandbox.syscalls import AUDIT_ARCH

START_SECONDS = 20.0

WALLS = ("files", "user", "seccomp", "environment", *LIMIT_WALLS)
"""What the recipe is made of; tests of the canary leave one out at a time."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
OWN_FILES = "/proc/self"
ABOUT_THE_MACHINE = (OWN_FILES, "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", machine.CPUS)

TOOLS_NEED_NAMESPACES = (
    "compute-sanitizer and ncu talk over sockets, which Landlock cannot keep from the host's; "
    "install bubblewrap"
)

LEAST_ABI_AS_ROOT = 3
"""Truncating is guarded from this version on (Linux 6.2); a user of its own keeps signals and /proc apart."""

LEAST_ABI = 6
"""Without a user of its own, signals must be scoped: Linux 6.12."""


@dataclass(frozen=True)
class Launched:
    """Spawns candidates through the launcher."""

    name: Literal["landlock", "none"]
    without: frozenset[str] = frozenset()

    def promise(self) -> Promise:
        """Namespaces are shared with the host; what may be opened, sent and called is not."""
        return Promise(
            namespaces=(),
            capabilities=0 if self._user() is None else privileges.MAY_REACH,
            scratch_is_bounded=False,
            variables=tuple(self._variables(Layout("", "", ""))),
        )

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined:
        """Start `argv` confined; returns once it runs. MachineError when the border cannot be raised.

        Call from a thread that lives as long as the candidate: the kernel ends it with the thread that made it.
        """
        ground = self.ground(argv, confinement)
        try:
            return self._launch(ground.plan, confinement, ground.folder)
        except OSError as error:
            ground.clear()
            raise SandboxError(f"the candidate's launcher could not be started: {error}") from error
        except BaseException:
            ground.clear()
            raise

    def ground(self, argv: Sequence[str], confinement: Confinement) -> Plot:
        """Make the scratch folder of one candidate, and the plan it confines itself by."""
        if confinement.tools and self.name != "none":
            raise SandboxError(TOOLS_NEED_NAMESPACES)
        uid = self._user()
        try:
            folder = Folder.make(roomy_place(confinement.scratch_bytes), confinement, uid)
        except OSError as error:
            raise SandboxError(f"no scratch folder for the candidate: {error}; make room there") from error
        try:
            return Plot(folder, self._plan(argv, confinement, folder.layout, uid))
        except BaseException:
            folder.remove()
            raise

    def _launch(self, plan: Plan, confinement: Confinement, folder: Folder) -> Confined:
        status, their_status = os.pipe()
        try:
            process = Popen(
                [sys.executable, "-S", "-m", "harness.sandbox.launch", str(their_status), plan.to_json()],
                env={"PYTHONPATH": folder.layout.lab, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=(their_status, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd=folder.layout.scratch,
                start_new_session=True,
            )
        finally:
            os.close(their_status)
        try:
            _await_start(status)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            os.close(status)
        return Leader(process, folder)

    def _plan(self, argv: Sequence[str], confinement: Confinement, layout: Layout, uid: int | None) -> Plan:
        unset = {LIMIT_WALLS.get(wall) for wall in self.without}
        if uid is None:
            unset.add(resource.RLIMIT_NPROC)  # it would count everything else this user runs
        readable_paths = [str(path) for path in self._readable(confinement, layout)]
        environment = {**confinement.environment, **self._variables(layout)}
        return Plan(
            limits=[(number, value) for number, value in limits(confinement).items() if number not in unset],
            uid=uid,
            capabilities=[] if uid is None else privileges.reaching(readable_paths),
            parent=os.getpid(),
            read=readable_paths,
            write=[layout.scratch, *DEVICES, *confinement.devices, *_own_files(confinement)],
            landlock=0 if self.name == "none" or "files" in self.without else landlock.abi(),
            seccomp=confinement.kind if self._filters() else None,
            environment={**os.environ, **environment} if "environment" in self.without else environment,
            argv=list(argv),
        )

    def _variables(self, layout: Layout) -> dict[str, str]:
        """Without namespaces there is no /dev/shm to give, which numba would complain about at each import."""
        return {**variables(layout), "PYTHONWARNINGS": "ignore:Could not obtain multiprocessing lock"}

    def _filters(self) -> bool:
        """A trusted workspace does without seccomp on a machine no filter is written for."""
        return "seccomp" not in self.without and (self.name != "none" or platform.machine() in AUDIT_ARCH)

    def _readable(self, confinement: Confinement, layout: Layout) -> Iterator[Path]:
        yield from interpreter.paths()
        yield from map(Path, ABOUT_THE_MACHINE)
        yield from (interpreter.package(), Path(layout.lab), confinement.workspace.resolve())
        yield from confinement.readable
        if confinement.devices:
            yield from map(Path, machine.ABOUT_DEVICES)

    def _user(self) -> int | None:
        """A user number of the candidate's own; None where we may not give it one."""
        if self.name == "none" or os.geteuid() != 0 or "user" in self.without:
            return None
        return privileges.spare_user()


class Plot(Ground):
    """A folder, and the host's own namespaces."""

    def __init__(self, folder: Folder, plan: Plan) -> None:
        self.layout = folder.layout
        self.plan = plan
        self.folder = folder

    def scratch_used(self) -> int:
        return self.folder.used()

    def company(self, pid: int) -> list[int]:
        return [other for other in table.session(pid) if other != pid]

    def end(self) -> None:
        """Nothing here is ours but the candidate and its group; its minder ends them."""

    def clear(self) -> None:
        self.folder.remove()


class Leader(Confined):
    """A candidate that leads a session of its own."""

    def __init__(self, process: Popen[bytes], folder: Folder) -> None:
        super().__init__(folder.layout, os.pidfd_open(process.pid), Born(process.pid, handle(process.pid)))
        self._process = process
        self._folder = folder

    def scratch_used(self) -> int:
        """Bytes in its scratch folder; 0 once it is gone."""
        return 0 if self._exit else self._folder.used()

    def _finished(self) -> bool:
        """Look without reaping: the number must stay ours until its group is ended."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _outcome(self) -> Exit:
        self._end()
        code = self._process.wait()
        deadline = time.monotonic() + REAP_SECONDS
        while table.group(self.pid):
            if time.monotonic() > deadline:
                raise MachineError(
                    f"processes of {self.pid}'s session outlived SIGKILL by {REAP_SECONDS:g} s"
                )
            time.sleep(0.001)
        return Exit(None, -code) if code < 0 else Exit(code, None)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _release(self) -> None:
        super()._release()
        self._folder.remove()


def landlock_rung(without: frozenset[str] = frozenset()) -> Launched:
    """Offer the rung where this kernel and user can have it; SandboxError says what is missing."""
    abi = landlock.abi()
    least = LEAST_ABI_AS_ROOT if os.geteuid() == 0 else LEAST_ABI
    if abi < least:
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        raise SandboxError(f"Landlock version {abi} found, {least} needed as {user}; use a newer kernel")
    return Launched("landlock", without)


def trusted_rung() -> Launched:
    """No border against files: clean environment, limits, seccomp. For the user's own code only."""
    return Launched("none")


def _own_files(confinement: Confinement) -> list[str]:
    """CUDA names its threads through /proc/self/task/*/comm, and fails with error 304 where it may not."""
    return [OWN_FILES] if confinement.devices else []


def _await_start(status: int) -> None:
    """Wait until the launcher has become the candidate; SandboxError when it cannot."""
    heard = readable(status, START_SECONDS)
    complaint = os.read(status, 4096).decode(errors="replace") if heard else f"silent for {START_SECONDS:g} s"
    if complaint:
        raise SandboxError(f"the launcher could not confine the candidate: {complaint}")
