"""A process behind the border, seen from the judge: freeze, thaw, watch, end."""

from __future__ import annotations

import os
import select
import signal
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import MachineError, UnreapedError
from hillclimb.harness.sandbox.confinement import SandboxLayout
from hillclimb.harness.sandbox.kernel import process_table

REAP_SECONDS = 10.0
"""A process that outlives SIGKILL by this long hangs in the kernel: the machine is at fault."""

FREEZE_SECONDS = 2.0
OFF_CPU_TIMEOUT_SECONDS = 0.03
"""For a stopped thread to leave its CPU: some microseconds, or a slice of the scheduler's where it was preempted."""

POLL_INTERVAL_SECONDS = 0.00005
PROCESS_TABLE_READS = 3
"""At the process table: one look may miss a process that forks and ends at that very moment."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class SpawnedProcess:
    """A process, and its pidfd, which is None where it was gone at once."""

    pid: int
    pidfd: int | None


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: a status, or the signal that ended it."""

    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit status {self.code}"
        return (
            signal.Signals(self.signal).name
            if self.signal in set(signal.Signals)
            else f"signal {self.signal}"
        )


class SandboxedProcess(ABC):
    """One candidate process, or one that is about to be: what needs it waits for its birth.

    Every method raises SandboxError where the border could not be raised around it.
    """

    def __init__(self, layout: SandboxLayout, outer: int, born: SpawnedProcess | None = None) -> None:
        """Take over descriptors: what becomes readable when all has ended, and with `born` the candidate's pidfd."""
        self.layout = layout
        self._exit: ExitStatus | None = None
        self._failure: MachineError | None = None
        self._born = born
        self._outer = outer
        self._ran_when_stopped = 0
        self._tells_where_it_waits = True

    @property
    def pid(self) -> int:
        """The host's number of the candidate's own Python."""
        return self._birth().pid

    @property
    def workspace_inside(self) -> str:
        """The workspace's path as the candidate sees it."""
        return self.layout.workspace

    def freeze(self) -> None:
        """Stop every thread, and see that it did; as `stop` and `await_stopped`."""
        self.stop()
        self.await_stopped()

    def stop(self) -> None:
        """Tell every thread to stop, without waiting for it."""
        self._signal(signal.SIGSTOP)

    def await_stopped(self) -> None:
        """See that every thread has stopped; MachineError when one does not. An ended process is left alone."""
        deadline = time.monotonic() + FREEZE_SECONDS
        stopped: set[str] = set()
        while process_table.has_running_thread(self.pid, stopped):
            if self.poll() is not None:
                return
            if time.monotonic() > deadline:
                raise MachineError(
                    f"process {self.pid} runs on {FREEZE_SECONDS:g} s after SIGSTOP; restart the run"
                )
            time.sleep(POLL_INTERVAL_SECONDS)
        self._settle()

    def _settle(self) -> None:
        """Note its CPU time once no more is added: a thread is said to have stopped just before it leaves its CPU.

        A kernel that does not tell where threads wait is asked no more, after its first silence.
        """
        deadline = time.monotonic() + OFF_CPU_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            before = process_table.cpu_time_ns(self.pid)
            if self._tells_where_it_waits:
                settled = process_table.is_off_cpu(self.pid)
            else:
                settled = True
                time.sleep(POLL_INTERVAL_SECONDS)
            self._ran_when_stopped = process_table.cpu_time_ns(self.pid)
            if settled and before == self._ran_when_stopped:
                return
        self._tells_where_it_waits = False

    def ran_while_frozen(self) -> bool:
        """Whether it got any CPU time, or woke up, since it was seen to have stopped.

        Its first thread stands for all: what wakes one wakes every one.
        """
        if process_table.cpu_time_ns(self.pid) != self._ran_when_stopped:
            return True
        return process_table.state_letter(self.pid) != "T" and process_table.has_running_thread(
            self.pid, set()
        )

    def thaw(self) -> None:
        """Let a frozen process run on."""
        self._signal(signal.SIGCONT)

    def ask_to_end(self) -> None:
        """Send SIGTERM to its own Python, without waiting for what becomes of it."""
        self._signal(signal.SIGTERM)

    def poll(self) -> ExitStatus | None:
        """How it ended, or None while it lives. MachineError where the border itself broke."""
        if self._failure is not None:
            raise self._failure
        if self._exit is None and self._finished():
            try:
                self._exit = self._outcome()
            except MachineError as error:
                self._failure = error
                raise
            finally:
                self._release()
        return self._exit

    def wait(self, seconds: float) -> ExitStatus | None:
        """Wait for the end; None when it is still alive after `seconds`."""
        if self._exit is None and self._failure is None:
            is_readable(self._outer, seconds)
        return self.poll()

    def send_sigkill(self) -> None:
        """Send SIGKILL to everything inside without waiting for its end, which `kill` does; MachineError as there.

        Where several are to end, end all before killing the first: a CUDA context takes its time to go.
        """
        if self._failure is None and self.poll() is None:
            self._end()

    def kill(self) -> None:
        """End and reap everything inside; MachineError, once, when the border broke or something stays."""
        self.send_sigkill()
        if self._failure is None and self.wait(REAP_SECONDS) is None:
            raise UnreapedError(
                f"process {self.pid} outlived SIGKILL by {REAP_SECONDS:g} s; it hangs in the kernel: "
                "look at `dmesg`, and restart the machine if it stays",
                self.pid,
            )

    def seal(self) -> bool:
        """Refuse, from outside, every new process and program behind the border: whoever tries is ended by SIGSYS.

        Call it while the candidate is frozen, and look at `other_pids` afterwards: no call is under way then. Threads
        go on working. False where the border cannot: for candidates started afresh, and before Linux 5.5.
        """
        return False

    def run_seconds(self) -> float:
        """As `cpu_seconds`, to the nanosecond."""
        return process_table.cpu_time_ns(self.pid) / 1e9

    def cpu_seconds(self) -> float:
        """CPU time of all its threads; 0 once it is gone."""
        return process_table.cpu_ticks(self.pid) / TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        """Resident memory, mapped buffers included; 0 once it is gone."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES
        except (OSError, IndexError):
            return 0

    def reset_peak(self) -> None:
        """Let the peak of its resident memory begin anew: proc(5), clear_refs."""
        with suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Most resident memory since `reset_peak`; 0 once it is gone."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return 0
        found = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
        return int(found.split()[1]) << 10

    def seccomp_filter_count(self) -> int:
        """Seccomp filters that every one of its threads has, as the kernel tells; 0 once it is gone.

        One more than after the spawn: it has sealed itself. What such a filter refuses the kernel does not tell,
        so ask for `other_pids` as well, after the seal and from time to time.
        """
        return process_table.seccomp_filter_count(self.pid)

    def other_pids(self) -> list[int]:
        """Host pids of living processes behind its border besides its own: what it has started, or left behind.

        One that has gone again since it was seen counts, as 0.
        """
        return sorted({pid for _ in range(PROCESS_TABLE_READS) for pid in self._company()})

    def other_count(self) -> int:
        """How many of those there are, at one look."""
        return len(self._company())

    def _company(self) -> list[int]:
        """One look."""
        return [pid for pid in process_table.session_pids(self.pid) if pid != self.pid]

    def scratch(self) -> Path:
        """Its scratch folder as the judge reaches it while it lives, as root or the same user.

        A link in there may lead anywhere on the host: open files with O_NOFOLLOW, below folders opened the same way.
        """
        return Path(f"/proc/{self.pid}/root{self.layout.scratch}")

    @abstractmethod
    def scratch_used_bytes(self) -> int:
        """Bytes that lie in its scratch folder; 0 once it is gone."""

    @abstractmethod
    def _finished(self) -> bool:
        """Whether the outermost process has ended."""

    @abstractmethod
    def _outcome(self) -> ExitStatus:
        """Reap, and say how the candidate ended."""

    @abstractmethod
    def _end(self) -> None:
        """Send SIGKILL to everything inside."""

    def _birth(self) -> SpawnedProcess:
        """Wait for the process where it is not there yet."""
        assert self._born is not None
        return self._born

    def _release(self) -> None:
        """Give back descriptors and folders, once."""
        os.close(self._outer)
        if self._born is not None and self._born.pidfd is not None:
            os.close(self._born.pidfd)
            self._born = SpawnedProcess(self._born.pid, None)

    def _signal(self, number: signal.Signals) -> None:
        own = self._birth().pidfd
        if own is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(own, number)


def open_pidfd(pid: int) -> int | None:
    """A pidfd, immune to the reuse of numbers; None when the process is gone."""
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable in time; for a pidfd: whether the process ends."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))
