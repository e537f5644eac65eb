"""What judge and candidate process say to each other: one question at a time, every end called by its name."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hillclimb.harness.channel import wire
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.choose import ExitStatus, SandboxedProcess

LOG_BYTES = 1 << 20
"""Most a candidate may print."""

SCRATCH_BYTES = 256 << 20
"""Most it may have in its scratch folder."""

FULL_SCRATCH_SHARE = 0.95
"""Share of the scratch folder from which on a fault is laid to its being full."""

QUOTED_BYTES = 2000
END_SECONDS = 10.0
"""For a process whose end of the socket is closed to be gone."""

WATCH_SECONDS = 0.05
"""How often a process is looked at while its answer is waited for."""

FAULTS = {
    "does_not_load": Reason.DOES_NOT_LOAD,
    "raised": Reason.RAISED,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "does_not_compile": Reason.DOES_NOT_COMPILE,
    "policy": Reason.POLICY,
}


LIBRARY_REACHED = (
    Reason.POLICY,
    "ran a finished library (BLAS, LAPACK or FFT), whose code is taken away where policy.library_calls is false",
)


class OutputLog:
    """Where a candidate's stdout and stderr go: it holds LOG_BYTES and not one more."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("hillclimb-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, LOG_BYTES)
        fcntl.fcntl(
            self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        )

    @property
    def is_full(self) -> bool:
        return self._size() >= LOG_BYTES

    def tail(self) -> str:
        """The end of what was printed."""
        size = self._size()
        start = max(0, size - QUOTED_BYTES)
        return os.pread(self.descriptor, size - start, start).decode(errors="replace")

    def written(self) -> bytes:
        """All that was printed."""
        return os.pread(self.descriptor, self._size(), 0)

    def close(self) -> None:
        os.close(self.descriptor)

    def _size(self) -> int:
        return os.lseek(self.descriptor, 0, os.SEEK_CUR)


class Conversation:
    """Raises CandidateFault for whatever but the one answer that is due comes, or becomes of the process."""

    def __init__(
        self,
        end: socket.socket,
        confined: SandboxedProcess,
        log: OutputLog,
        watch: Callable[[], None],
        is_walled: bool = False,
    ) -> None:
        """Take over this end of the socket; the other one is the candidate's.

        `watch` is called from time to time while an answer is waited for; what it raises ends the waiting.
        `is_walled` where finished libraries were taken away from the process.
        """
        self._is_walled = is_walled
        self._end, self._confined, self._log, self._watch = end, confined, log, watch

    def close(self) -> None:
        self._end.close()

    def ask(self, question: Mapping[str, Any], *descriptors: int) -> None:
        """Ask something; nothing may have been said since the last answer."""
        try:
            if self.has_answer():
                said, _ = wire.receive(self._end)
                raise CandidateFault(Reason.BROKE_PROTOCOL, f"said {str(said)[:200]} without being asked")
        except wire.NotAMessageError as error:
            raise self._broken_protocol(error) from error
        except wire.WireError as error:
            self._raise_exit_fault(str(error))
        self.ask_ahead(question, *descriptors)

    def ask_ahead(self, question: Mapping[str, Any], *descriptors: int) -> None:
        """Ask before an earlier question is answered."""
        try:
            wire.send(self._end, dict(question), descriptors)
        except wire.WireError as error:
            self._raise_exit_fault(str(error))

    def has_answer(self, seconds: float = 0) -> bool:
        """Wait so long for something to be there to read, or the other end to be closed."""
        return bool(wire.make_poll(self._end).poll(seconds * 1000))

    def answer(self, seconds: float, doing: str, *, spinning: bool = False) -> dict[str, Any]:
        """Wait for the one answer that is due; `spinning` without ever sleeping: waking up must not be timed."""
        if not (self._spin if spinning else self._sleep)(seconds):
            raise CandidateFault(Reason.HUNG, f"no answer after {seconds:g} s of {doing}{self._quote()}")
        try:
            message, _ = wire.receive(self._end)
        except wire.NotAMessageError as error:
            raise self._broken_protocol(error) from error
        except wire.WireError as error:
            self._raise_exit_fault(str(error))
        if self._log.is_full:
            raise CandidateFault(
                Reason.FLOODED_OUTPUT, f"printed more than {LOG_BYTES >> 20} MiB while {doing}"
            )
        if message.get("ok") is True:
            return message
        fault, text = message.get("fault"), message.get("text")
        if not isinstance(fault, str) or fault not in FAULTS or not isinstance(text, str):
            raise CandidateFault(Reason.BROKE_PROTOCOL, f"answered {str(message)[:200]} while {doing}")
        if self._confined.scratch_used_bytes() >= FULL_SCRATCH_SHARE * SCRATCH_BYTES:
            raise CandidateFault(Reason.WROTE_TOO_MUCH, f"filled its scratch folder: {text.strip()}")
        raise CandidateFault(FAULTS[fault], text.strip())

    def _broken_protocol(self, error: wire.NotAMessageError) -> CandidateFault:
        """It is not waited for: whoever asked ends it."""
        return CandidateFault(Reason.BROKE_PROTOCOL, f"{error}{self._quote()}")

    def _sleep(self, seconds: float) -> bool:
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            if self.has_answer(min(left, WATCH_SECONDS)):
                return True
            self._watch()
        return self.has_answer()

    def _spin(self, seconds: float) -> bool:
        deadline, poll = time.perf_counter() + seconds, wire.make_poll(self._end)
        while not poll.poll(0):
            if time.perf_counter() > deadline:
                return False
        return True

    def _raise_exit_fault(self, said: str) -> NoReturn:
        """The socket failed: find out how the process ended and call it by its name."""
        self._confined.thaw()
        end = self._confined.wait(END_SECONDS)
        if self._log.is_full:
            raise CandidateFault(Reason.FLOODED_OUTPUT, f"printed more than {LOG_BYTES >> 20} MiB")
        if end is None:
            raise CandidateFault(Reason.BROKE_PROTOCOL, f"{said}, yet the process lives on")
        reason, detail = LIBRARY_REACHED if self._met_wall(end) else exit_fault(end)
        raise CandidateFault(reason, detail + self._quote())

    def _met_wall(self, end: ExitStatus) -> bool:
        return self._is_walled and end.signal == signal.SIGTRAP

    def _quote(self) -> str:
        printed = self._log.tail().strip()
        return f"; it printed: {printed[-500:]}" if printed else ""


def exit_fault(end: ExitStatus) -> tuple[Reason, str]:
    """What the way a process ended says about it."""
    if end.signal is None:
        return Reason.EXITED, f"left with status {end.code} before it was asked to"
    if end.signal == signal.SIGSYS:
        return Reason.STARTED_PROCESS, "tried to start a process or replace itself (killed by seccomp)"
    if end.signal == signal.SIGXFSZ:
        return Reason.WROTE_TOO_MUCH, "wrote a file larger than its scratch space"
    if end.signal == signal.SIGKILL:
        return Reason.OUT_OF_MEMORY, "killed by SIGKILL, as the kernel does when memory runs out"
    return Reason.CRASHED, f"died of {end}"


def reported_seconds(answer: dict[str, Any]) -> float:
    """What it says its device took. Raises CandidateFault where that is no time."""
    nanoseconds = answer.get("ns")
    if (
        isinstance(nanoseconds, bool)
        or not isinstance(nanoseconds, int | float)
        or not 0 < nanoseconds < 1e15
    ):
        raise CandidateFault(Reason.BROKE_PROTOCOL, f"told {str(nanoseconds)[:60]} as its own time")
    return nanoseconds / 1e9
