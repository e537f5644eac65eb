"""A candidate behind bubblewrap, and the held namespaces that candidates are forked into."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from subprocess import Popen

from hillclimb.harness.errors import MachineError, SandboxError
from hillclimb.harness.sandbox.confinement import SandboxLayout
from hillclimb.harness.sandbox.fork.bubblewrap_ready import START_SECONDS, START_TIMEOUT_MESSAGE
from hillclimb.harness.sandbox.fork.namespace_plan import Holder, PreparedSandbox
from hillclimb.harness.sandbox.kernel import process_table
from hillclimb.harness.sandbox.kernel.process_table import NamespaceProcesses, child_pids
from hillclimb.harness.sandbox.launch import ConfinementPlan
from hillclimb.harness.sandbox.process import (
    REAP_SECONDS,
    ExitStatus,
    SandboxedProcess,
    SpawnedProcess,
    is_readable,
    open_pidfd,
)

HOLDER_LIFETIME_SECONDS = 7 * 86400.0
"""No candidate's process lives for a week. A holder whose judge was killed at the wrong moment ends then."""

INSIDE = SandboxLayout(workspace="/workspace", scratch="/scratch", python_path="/lab")

NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")


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
class StartedBubblewrap:
    """bubblewrap, ours to reap, and the first process of its namespaces."""

    process: Popen[bytes]
    pidfd: int
    """Its pidfd."""
    init_pid: int
    status_pipe: int

    def abandon(self) -> None:
        """End what nobody will use."""
        kill_bubblewrap(self.process.pid)
        self.process.wait()
        os.close(self.pidfd)
        os.close(self.status_pipe)


class PreparedNamespaces(PreparedSandbox):
    """Namespaces that a process of ours holds open, or soon will, for one that joins them."""

    def __init__(self, process: Popen[bytes], holder: Holder, words: int, plan: ConfinementPlan) -> None:
        """Take over bubblewrap, the pipe it reports on, and the file that holds what it says."""
        self.layout = INSIDE
        self.plan = plan
        self.holder = holder
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._words = words
        self._first = 0
        self._init: int | None = None
        self._residents: NamespaceProcesses | None = None

    def attach_holder(self, first: int, descriptors: list[int]) -> None:
        self._first = first
        self._init, folder = descriptors
        self._residents = NamespaceProcesses(folder)

    def error_output(self) -> str:
        return os.pread(self._words, 4096, 0).decode(errors="replace").strip()

    def other_pids(self, pid: int) -> list[int]:
        return [] if self._residents is None else self._residents.other_pids(pid)

    def scratch_used_bytes(self) -> int:
        return scratch_used(self._first)

    def send_sigkill(self) -> None:
        """The kernel ends everything in the namespace with its first process, and that with bubblewrap."""
        if self._init is None:
            kill_bubblewrap(self._process.pid)
        for process in (self._init, self._outer):
            if process is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)

    def clean_up(self) -> None:
        self.send_sigkill()
        try:
            for process in (self._init, self._outer):
                if process is not None and not is_readable(process, REAP_SECONDS):
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


class BubblewrapProcess(SandboxedProcess):
    """A candidate in namespaces of its own: bwrap (ours) > init (first in the namespace) > candidate."""

    def __init__(self, begun: StartedBubblewrap, pid: int) -> None:
        super().__init__(INSIDE, begun.pidfd, SpawnedProcess(pid, open_pidfd(pid)))
        self._process = begun.process
        self._init = open_pidfd(begun.init_pid)
        self._status = begun.status_pipe
        self._killed = False
        self._residents = _residents(begun.init_pid)

    def scratch_used_bytes(self) -> int:
        """Bytes in the size-limited tmpfs; 0 once it is gone."""
        return scratch_used(self.pid)

    def _company(self) -> list[int]:
        return [] if self._residents is None else self._residents.other_pids(self.pid)

    def _finished(self) -> bool:
        return self._process.poll() is not None

    def _outcome(self) -> ExitStatus:
        """Read the status bubblewrap wrote. In it 128 + n stands for signal n, and for that exit status too."""
        if self._init is not None and not is_readable(self._init, REAP_SECONDS):
            raise MachineError(
                f"processes of the sandbox of {self.pid} are still there after {REAP_SECONDS:g} s"
            )
        code = _exit_code(_drain(self._status))
        if code is None and self._killed:  # before it came to the candidate's exec
            return ExitStatus(None, signal.SIGKILL)
        if code is None:
            raise SandboxError(
                f"bubblewrap could not start the candidate (status {self._process.returncode}); "
                "its own words are on the candidate's output"
            )
        return ExitStatus(None, code - 128) if 128 < code <= 128 + signal.NSIG else ExitStatus(code, None)

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


def holder_command() -> list[str]:
    """A program that is everywhere, reads nothing and outlasts every candidate."""
    sleep = shutil.which("sleep", path="/usr/bin:/bin")
    seconds = f"{HOLDER_LIFETIME_SECONDS:.0f}"
    return [sleep, seconds] if sleep else [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]


def kill_bubblewrap(pid: int) -> None:
    """SIGKILL for a bubblewrap of ours, and what it started: until it has bound that to its own end, it would live on.

    Stopped first, it starts nothing while its children are looked up.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + REAP_SECONDS
        while (
            process_table.state_letter(pid) not in process_table.INACTIVE_STATES
            and time.monotonic() < deadline
        ):
            time.sleep(0.0001)
        for child in child_pids(pid):
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


def _residents(first: int) -> NamespaceProcesses | None:
    """Of the namespace of this first process; None once that has ended, and everything else with it."""
    try:
        return NamespaceProcesses.of_namespace(first)
    except FileNotFoundError:
        return None


def _candidate_pid(process: Popen[bytes], init: int, *, is_filtered: bool) -> int:
    """Wait for the one child of the namespace's first process; that process itself where it is gone already.

    `is_filtered` where that process gets a filter too. It binds its life to bubblewrap's just before; until then the
    child would outlive a judge that is killed.
    """
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if (not is_filtered or process_table.is_filtered(init)) and (born := child_pids(init)):
            return born[0]
        if time.monotonic() > deadline:
            raise MachineError(START_TIMEOUT_MESSAGE)
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
