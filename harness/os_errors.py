"""What the operating system refused, as the error that says whether waiting for the disk can help."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from hillclimb.harness.errors import JudgeError, MachineError, StorageError

DISK = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EIO: "check the disk (dmesg names it)",
}
"""Refusals of a disk, and what to do; a climb waits for these to pass."""

OTHERS = {
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.EROFS: "remount the file system writable",
    errno.EMFILE: "raise the open file limit (ulimit -n)",
    errno.ENFILE: "close programs that hold many files open",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "end some processes, or raise their limit (ulimit -u)",
    errno.EACCES: "give this user permission there",
    errno.EPERM: "give this user permission there",
}


def machine_error(doing: str, error: OSError) -> MachineError:
    """StorageError where a disk refused, else JudgeError; with what was being done, and a remedy."""
    number = error.errno or 0
    where = f"{error.filename}: " if error.filename else ""
    told = f"{doing}: {where}{error.strerror or error}; "
    if number in DISK:
        return StorageError(told + DISK[number])
    return JudgeError(told + OTHERS.get(number, "mend that, and give the same command again"))


@contextmanager
def translated_os_errors(doing: str) -> Iterator[None]:
    """Turns an OSError into what `refusal` makes of it; a connection that is gone is nobody's refusal."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise machine_error(doing, error) from error
