"""Folders to work in, which are of one process each and go when it does."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from hillclimb.harness.gemm.folder import locked

DRAFTS = "drafts"


class Draft:
    """A new folder in `drafts` of a store. What processes that are gone left there is removed.

    A folder is its maker's for as long as it is locked; the lock goes with the process, also in another container.
    """

    def __init__(self, store: Path) -> None:
        drafts = store / DRAFTS
        with locked(drafts, waits=True):
            for old in drafts.iterdir():
                _remove_if_abandoned(old)
            self.folder = drafts.absolute() / secrets.token_hex(8)
            self.folder.mkdir()
            self._lock = _lock(self.folder)

    def remove(self) -> None:
        """It may have been moved away before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(folder: Path) -> int | None:
    """None where another process has it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        opened = _lock(folder)
        if opened is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(opened)
