"""What a process runs after the word to stop: charged, and refused call after call.

No signal stops a system call, so a thread inside the kernel works on until that is over.
"""

from __future__ import annotations

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

HONEST_SECONDS = 0.00025
"""CPU time after the word to stop. Of 1243 calls of honest kernels on a busy machine the longest ran on for 0.24 ms."""

LATE_SECONDS, LATE_SHARE, MAX_LATE = 0.005, 0.25, 3
"""CPU time after the word to stop, in seconds and as a share of the call's: above both a call is late, and so many in
a row are too many. Honest threads that spin, on a machine with three times as much to do as it has CPUs, ran on for
4.7 ms; on shared virtual CPUs, 1 of 124 calls for 7.1 ms."""


class RunningOn:
    """The calls of one process."""

    def __init__(self) -> None:
        self._late = 0

    def charge(self, called: float, ran: float, waited: float) -> float:
        """Seconds to add to a call of `called` seconds whose process then `ran` for so much CPU time.

        It was seen to have stopped `waited` seconds after the word. Where it ran for longer than honest ones, that
        counts: with others in want of the same CPUs, its CPU time is the shorter one. The clock of one that has ended
        reads 0, and takes nothing off.

        Raises CandidateFault(LEFT_WORK_RUNNING) for the third late call in a row.
        """
        self._late = self._late + 1 if ran > max(LATE_SECONDS, LATE_SHARE * called) else 0
        if self._late >= MAX_LATE:
            detail = f"ran on the CPU for {ran * 1e3:.1f} ms after it was stopped, {MAX_LATE} calls in a row"
            raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)
        return max(ran, waited if ran > HONEST_SECONDS else 0.0)
