"""A process behind the border, seen from the judge: freeze, thaw, watch, end."""

from __future__ import annotations

import os
import select
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import MachineError, UnreapedError
from harness.sandbox.confinement import Layout

REAP_SECONDS = 10.0
"""A process that outlives SIGKILL by this long hangs in the kernel: the machine is at fault."""

FREEZE_SECONDS = 2.0
LOOKS = 3
"""At the process table: one look may miss a process that forks and ends at that very moment."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Exit:
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


class Confined(ABC):
    """One candidate process. `pid` is the host's number of the candidate's own Python."""

    def __init__(self, pid: int, layout: Layout, own: int | None, outer: int) -> None:
        """Take over two descriptors: the candidate's pidfd, and what becomes readable when all has ended."""
        self.pid = pid
        self.layout = layout
        self._exit: Exit | None = None
        self._failure: MachineError | None = None
        self._handle = own
        self._outer = outer
        self._ran_when_stopped = 0

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
        while not self._stopped():
            if self.poll() is not None:
                return
            if time.monotonic() > deadline:
                raise MachineError(
                    f"process {self.pid} runs on {FREEZE_SECONDS:g} s after SIGSTOP; restart the run"
                )
            time.sleep(0.00005)
        self._ran_when_stopped = self._run_time()

    def ran_while_frozen(self) -> bool:
        """Whether it got any CPU time, or woke up, since it was seen to have stopped."""
        return not self._stopped() or self._run_time() != self._ran_when_stopped

    def thaw(self) -> None:
        """Let a frozen process run on."""
        self._signal(signal.SIGCONT)

    def poll(self) -> Exit | None:
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

    def wait(self, seconds: float) -> Exit | None:
        """Wait for the end; None when it is still alive after `seconds`."""
        if self._exit is None and self._failure is None:
            readable(self._outer, seconds)
        return self.poll()

    def kill(self) -> None:
        """End and reap everything inside; MachineError, once, when the border broke or something stays."""
        if self._failure is None and self.poll() is None:
            self._end()
            if self.wait(REAP_SECONDS) is None:
                raise UnreapedError(
                    f"process {self.pid} outlived SIGKILL by {REAP_SECONDS:g} s; it hangs in the kernel: "
                    "look at `dmesg`, and restart the machine if it stays",
                    self.pid,
                )

    def cpu_seconds(self) -> float:
        """CPU time of all its threads; 0 once it is gone."""
        fields = _stat(Path(f"/proc/{self.pid}/stat"))
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND if fields else 0.0

    def resident_bytes(self) -> int:
        """Resident memory, mapped buffers included; 0 once it is gone."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES
        except (OSError, IndexError):
            return 0

    def filters(self) -> int:
        """Seccomp filters that every one of its threads has, as the kernel tells; 0 once it is gone.

        One more than after the spawn: it has sealed itself. What such a filter refuses the kernel does not tell,
        so ask for `others` as well, after the seal and from time to time.
        """
        counted = [_filters(task) for task in _paths(Path(f"/proc/{self.pid}/task"))]
        return min((count for count in counted if count is not None), default=0)

    def others(self) -> list[int]:
        """Host pids of living processes behind its border besides its own: what it has started, or left behind."""
        found: set[int] = set()
        for _ in range(LOOKS):
            found |= {pid for pid in lineage(self._roots(), self.pid) if pid not in self._roots()}
        return sorted(found)

    def _roots(self) -> set[int]:
        """The candidate, and what else the border itself runs inside."""
        return {self.pid}

    def scratch(self) -> Path:
        """Its scratch folder as the judge reaches it while it lives, as root or the same user.

        A link in there may lead anywhere on the host: open files with O_NOFOLLOW, below folders opened the same way.
        """
        return Path(f"/proc/{self.pid}/root{self.layout.scratch}")

    @abstractmethod
    def scratch_used(self) -> int:
        """Bytes that lie in its scratch folder; 0 once it is gone."""

    @abstractmethod
    def _finished(self) -> bool:
        """Whether the outermost process has ended."""

    @abstractmethod
    def _outcome(self) -> Exit:
        """Reap, and say how the candidate ended."""

    @abstractmethod
    def _end(self) -> None:
        """Send SIGKILL to everything inside."""

    def _release(self) -> None:
        """Give back descriptors and folders, once."""
        for descriptor in (self._handle, self._outer):
            if descriptor is not None:
                os.close(descriptor)
        self._handle = None

    def _signal(self, number: signal.Signals) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def _run_time(self) -> int:
        """Nanoseconds on a CPU, all threads together; 0 where the kernel does not count them."""
        total = 0
        with suppress(OSError, IndexError):
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total

    def _stopped(self) -> bool:
        with suppress(OSError):
            tasks = list(Path(f"/proc/{self.pid}/task").iterdir())
            return all(_stat(task / "stat")[:1] in (["T"], []) for task in tasks)
        return False


def handle(pid: int) -> int | None:
    """A pidfd, immune to the reuse of numbers; None when the process is gone."""
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable in time; for a pidfd: whether the process ends."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))


def children(pid: int) -> list[int]:
    """Host pids of a process's children; empty when it is gone."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [number for number, fields in _everybody() if fields[1] == str(pid)]


def members(group: int) -> list[int]:
    """Pids of a process group, without those that have ended and wait for somebody to collect them."""
    return [pid for pid, fields in _everybody() if fields[2] == str(group) and fields[0] not in "ZX"]


def lineage(roots: set[int], leader: int) -> set[int]:
    """Pids of `roots`, of all that descend from them, and of the group and session led by `leader`; no zombies.

    Nobody leaves it: an orphan goes to the first process of its namespace, which is a root, or keeps its group,
    since the border refuses setsid and setpgid.
    """
    rows = list(_everybody())
    family = roots | {pid for pid, fields in rows if str(leader) in (fields[2], fields[3])}
    while born := {pid for pid, fields in rows if int(fields[1]) in family} - family:
        family |= born
    return family - {pid for pid, fields in rows if fields[0] in "ZX"}


def _filters(task: Path) -> int | None:
    """Count one thread's filters; None when it is gone. Without the count (before Linux 5.9): 0."""
    try:
        status = (task / "status").read_text(errors="replace")
    except OSError:
        return None
    return int((status.partition("\nSeccomp_filters:")[2].split() or ["0"])[0])


def _paths(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _everybody() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(entry / "stat")):
            yield int(entry.name), fields


def _stat(path: Path) -> list[str]:
    """Fields of a stat file from the state on; empty when the process is gone.

    The name before them may hold spaces and brackets of the candidate's choice.
    """
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
