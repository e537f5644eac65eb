"""Goes on after trouble with the disk: one session after another until one comes to its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hillclimb.agent.climb.request import Tools
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.machine.interrupts import Interrupts
from hillclimb.agent.screen.events import FinishedEvent
from hillclimb.harness.errors import MachineError, StorageError, UnwritableError

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0

MAX_DISK_RETRIES = 60
"""Times that the same trouble may come back after the disk of the runs took writes again."""


def retry_after_disk_errors(
    session: Callable[[], FinishedEvent], folder: Path, tools: Tools, interrupts: Interrupts
) -> FinishedEvent:
    """Sessions until one comes to its end: a disk that refuses is waited for, said once, and the ledger read anew.

    Raises UnwritableError where waiting cannot help. Raises MachineError where the runs' disk takes writes and the same
    trouble comes back all the same: it is another's.
    """
    pause, said, again = FIRST_WAIT_SECONDS, "", 0
    while True:
        try:
            return session()
        except UnwritableError:
            raise
        except StorageError as error:
            again = again + 1 if str(error) == said else 0
            if again == MAX_DISK_RETRIES:
                raise MachineError(
                    f"{error}; it came back {again} times, though {folder} can be written"
                ) from error
            if str(error) != said:
                said = str(error)
                tools.notice(
                    f"{error}. Everything recorded is safe; the climb waits until the disk takes writes again"
                )
        pause = _await_writable(folder, pause, tools, interrupts)


def _await_writable(folder: Path, pause: float, tools: Tools, interrupts: Interrupts) -> float:
    """Wait in growing steps until the disk takes writes; the seconds to wait the next time."""
    while True:
        with interrupts.interruptible():
            tools.clock.sleep(pause)
        pause = min(2 * pause, MAX_WAIT_SECONDS)
        if not _is_unwritable(tools.disk, folder):
            return pause


def _is_unwritable(disk: Disk, folder: Path) -> bool:
    """Raises UnwritableError where that cannot pass."""
    try:
        disk.probe(folder)
    except UnwritableError:
        raise
    except StorageError:
        return True
    return False
