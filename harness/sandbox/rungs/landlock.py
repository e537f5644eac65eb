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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Literal

from hillclimb.harness.errors import MachineError, SandboxError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.confinement import (
    LIMIT_WALLS,
    Confinement,
    RungGuarantees,
    SandboxLayout,
    base_variables,
    resource_limits,
)
from hillclimb.harness.sandbox.fork.namespace_plan import PreparedSandbox
from hillclimb.harness.sandbox.kernel import landlock, privileges, process_table, readable_proc
from hillclimb.harness.sandbox.kernel.syscalls import AUDIT_ARCH
from hillclimb.harness.sandbox.launch import ConfinementPlan
from hillclimb.harness.sandbox.process import (
    REAP_SECONDS,
    ExitStatus,
    SandboxedProcess,
    SpawnedProcess,
    is_readable,
    open_pidfd,
)
from hillclimb.harness.sandbox.rungs.locked_folder import CandidateFolder, choose_parent_folder

START_SECONDS = 20.0

WALLS = ("files", "user", "seccomp", "environment", *LIMIT_WALLS)
"""What the recipe is made of; tests of the canary leave one out at a time."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
OWN_FILES = "/proc/self"
MACHINE_PATHS = (OWN_FILES, "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", readable_proc.CPUS)

TOOLS_NEED_NAMESPACES = (
    "compute-sanitizer and ncu talk over sockets, which Landlock cannot keep from the host's; "
    "install bubblewrap"
)

MIN_ABI_AS_ROOT = 3
"""Truncating is guarded from this version on (Linux 6.2); a user of its own keeps signals and /proc apart."""

MIN_ABI = 6
"""Without a user of its own, signals must be scoped: Linux 6.12."""


@dataclass(frozen=True)
class LauncherRung:
    """Spawns candidates through the launcher."""

    name: Literal["landlock", "none"]
    without: frozenset[str] = frozenset()

    def guarantees(self) -> RungGuarantees:
        """Namespaces are shared with the host; what may be opened, sent and called is not."""
        return RungGuarantees(
            namespaces=(),
            capabilities=0 if self._user() is None else privileges.REACH_CAPABILITIES_MASK,
            scratch_is_bounded=False,
            variables=tuple(self._variables(SandboxLayout("", "", ""))),
        )

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess:
        """Start `argv` confined; returns once it runs. MachineError when the border cannot be raised.

        Call from a thread that lives as long as the candidate: the kernel ends it with the thread that made it.
        """
        prepared = self.prepare(argv, confinement)
        with ExitStack() as unless_launched:
            unless_launched.callback(prepared.clean_up)
            try:
                launched = self._launch(prepared.plan, confinement, prepared.folder)
            except OSError as error:
                raise SandboxError(f"the candidate's launcher could not be started: {error}") from error
            unless_launched.pop_all()
        return launched

    def prepare(self, argv: Sequence[str], confinement: Confinement) -> PreparedFolder:
        """Make the scratch folder of one candidate, and the plan it confines itself by."""
        if confinement.tools and self.name != "none":
            raise SandboxError(TOOLS_NEED_NAMESPACES)
        uid = self._user()
        try:
            folder = CandidateFolder.make(choose_parent_folder(confinement.scratch_bytes), confinement, uid)
        except OSError as error:
            raise SandboxError(f"no scratch folder for the candidate: {error}; make room there") from error
        with ExitStack() as unless_planned:
            unless_planned.callback(folder.remove)
            prepared = PreparedFolder(folder, self._plan(argv, confinement, folder.layout, uid))
            unless_planned.pop_all()
        return prepared

    def _launch(
        self, plan: ConfinementPlan, confinement: Confinement, folder: CandidateFolder
    ) -> SandboxedProcess:
        status, their_status = os.pipe()
        try:
            process = Popen(
                [
                    sys.executable,
                    "-S",
                    "-m",
                    "hillclimb.harness.sandbox.launch",
                    str(their_status),
                    plan.to_json(),
                ],
                env={
                    "PYTHONPATH": folder.layout.python_path,
                    "PYTHONSAFEPATH": "1",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                pass_fds=(their_status, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd=folder.layout.scratch,
                start_new_session=True,
            )
        finally:
            os.close(their_status)
        with ExitStack() as always, ExitStack() as unless_started:
            always.callback(os.close, status)
            unless_started.callback(process.wait)
            unless_started.callback(process.kill)
            _await_start(status)
            unless_started.pop_all()
        return SessionLeaderProcess(process, folder)

    def _plan(
        self, argv: Sequence[str], confinement: Confinement, layout: SandboxLayout, uid: int | None
    ) -> ConfinementPlan:
        unset = {LIMIT_WALLS.get(wall) for wall in self.without}
        if uid is None:
            unset.add(resource.RLIMIT_NPROC)  # it would count everything else this user runs
        readable_paths = [str(path) for path in self._readable(confinement, layout)]
        environment = {**confinement.environment, **self._variables(layout)}
        return ConfinementPlan(
            limits=[
                (number, value)
                for number, value in resource_limits(confinement).items()
                if number not in unset
            ],
            uid=uid,
            capabilities=[] if uid is None else privileges.capabilities_to_reach(readable_paths),
            parent=os.getpid(),
            read=readable_paths,
            write=[layout.scratch, *DEVICES, *confinement.devices, *_own_files(confinement)],
            landlock=0 if self.name == "none" or "files" in self.without else landlock.abi_version(),
            seccomp=confinement.kind if self._filters() else None,
            environment={**os.environ, **environment} if "environment" in self.without else environment,
            argv=list(argv),
        )

    def _variables(self, layout: SandboxLayout) -> dict[str, str]:
        """Without namespaces there is no /dev/shm to give, which numba would complain about at each import."""
        return {**base_variables(layout), "PYTHONWARNINGS": "ignore:Could not obtain multiprocessing lock"}

    def _filters(self) -> bool:
        """A trusted workspace does without seccomp on a machine no filter is written for."""
        return "seccomp" not in self.without and (self.name != "none" or platform.machine() in AUDIT_ARCH)

    def _readable(self, confinement: Confinement, layout: SandboxLayout) -> Iterator[Path]:
        yield from interpreter.readable_paths()
        yield from map(Path, MACHINE_PATHS)
        yield from (
            interpreter.package_init_file(),
            interpreter.harness_folder(),
            Path(layout.python_path),
            confinement.workspace.resolve(),
        )
        yield from confinement.readable
        if confinement.devices:
            yield from map(Path, readable_proc.DEVICE_PATHS)

    def _user(self) -> int | None:
        """A user number of the candidate's own; None where we may not give it one."""
        if self.name == "none" or os.geteuid() != 0 or "user" in self.without:
            return None
        return privileges.pick_unused_uid()


class PreparedFolder(PreparedSandbox):
    """A folder, and the host's own namespaces."""

    def __init__(self, folder: CandidateFolder, plan: ConfinementPlan) -> None:
        self.layout = folder.layout
        self.plan = plan
        self.folder = folder

    def scratch_used_bytes(self) -> int:
        return self.folder.used_bytes()

    def other_pids(self, pid: int) -> list[int]:
        return [other for other in process_table.session_pids(pid) if other != pid]

    def send_sigkill(self) -> None:
        """Nothing here is ours but the candidate and its group; its supervisor ends them."""

    def clean_up(self) -> None:
        self.folder.remove()


class SessionLeaderProcess(SandboxedProcess):
    """A candidate that leads a session of its own."""

    def __init__(self, process: Popen[bytes], folder: CandidateFolder) -> None:
        super().__init__(
            folder.layout, os.pidfd_open(process.pid), SpawnedProcess(process.pid, open_pidfd(process.pid))
        )
        self._process = process
        self._folder = folder

    def scratch_used_bytes(self) -> int:
        """Bytes in its scratch folder; 0 once it is gone."""
        return 0 if self._exit else self._folder.used_bytes()

    def _finished(self) -> bool:
        """Look without reaping: the number must stay ours until its group is ended."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _outcome(self) -> ExitStatus:
        self._end()
        code = self._process.wait()
        deadline = time.monotonic() + REAP_SECONDS
        while process_table.group_pids(self.pid):
            if time.monotonic() > deadline:
                raise MachineError(
                    f"processes of {self.pid}'s session outlived SIGKILL by {REAP_SECONDS:g} s"
                )
            time.sleep(0.001)
        return ExitStatus(None, -code) if code < 0 else ExitStatus(code, None)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _release(self) -> None:
        super()._release()
        self._folder.remove()


def landlock_rung(without: frozenset[str] = frozenset()) -> LauncherRung:
    """Offer the rung where this kernel and user can have it; SandboxError says what is missing."""
    abi = landlock.abi_version()
    least = MIN_ABI_AS_ROOT if os.geteuid() == 0 else MIN_ABI
    if abi < least:
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        raise SandboxError(f"Landlock version {abi} found, {least} needed as {user}; use a newer kernel")
    return LauncherRung("landlock", without)


def trusted_rung() -> LauncherRung:
    """No border against files: clean environment, limits, seccomp. For the user's own code only."""
    return LauncherRung("none")


def _own_files(confinement: Confinement) -> list[str]:
    """CUDA names its threads through /proc/self/task/*/comm, and fails with error 304 where it may not."""
    return [OWN_FILES] if confinement.devices else []


def _await_start(status: int) -> None:
    """Wait until the launcher has become the candidate; SandboxError when it cannot."""
    heard = is_readable(status, START_SECONDS)
    complaint = os.read(status, 4096).decode(errors="replace") if heard else f"silent for {START_SECONDS:g} s"
    if complaint:
        raise SandboxError(f"the launcher could not confine the candidate: {complaint}")
