"""What git's failures mean: a repository that a person must mend, a disk to wait for, or neither."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from hillclimb.harness.errors import MachineError, StorageError, UnwritableError, UsageError

_UNWRITABLE_TEXTS = tuple(
    os.strerror(n) for n in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EFBIG, errno.EMFILE)
)
"""What git says of a repository that a person has to mend."""
_DISK_ERROR_TEXTS = (
    *(os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EIO)),
    # git does not always say why it could not write
    "Out of diskspace",
    "write error",
    "nable to write",
    "ailed to write",
    "ould not write",
)


class GitFailed(MachineError):
    """Git ended with an error that is no trouble of the disk."""


class NoRepository(UsageError):
    """A folder lies in no git repository."""


def git_failure(arguments: Sequence[str], complaint: str) -> MachineError:
    """The error for a command that ended with a complaint: of a person, of the disk, or of git."""
    said = complaint.splitlines()[-1] if complaint else "no message"
    if any(trouble in complaint for trouble in _UNWRITABLE_TEXTS):
        return UnwritableError(f"git {arguments[0]}: {said}; make the repository writable for this user")
    if any(trouble in complaint for trouble in _DISK_ERROR_TEXTS):
        return StorageError(f"git {arguments[0]}: {said}; free or mend the disk that the repository is on")
    return GitFailed(f"git {arguments[0]}: {said}")
