"""Small files that outlive a judge: where they lie, and writing them so that a crash leaves the old or the new one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from hillclimb.harness.errors import UnwritableError

MAX_FILE_BYTES = 1 << 16
"""Longest file that is read; all of these are far shorter."""

SHARED = (Path("/run/lock"), Path("/tmp"))
"""Folders that every user of a machine may write to, best first; the same for all whatever TMPDIR says."""


def shared_folder() -> Path:
    """Where all users of this machine look for locks and quarantines. Raises UnwritableError where there is none."""
    for folder in SHARED:
        with suppress(OSError):
            if stat.S_IMODE(folder.stat().st_mode) & 0o1007 == 0o1007:
                return folder
    raise UnwritableError(
        f"none of {', '.join(map(str, SHARED))} is a sticky folder that all may write to; make one"
    )


def state_folder() -> Path:
    """Where this user's measurements of a machine are kept: hillclimb/ below XDG_STATE_HOME or ~/.local/state.

    Made where it is missing. No candidate is granted any of it. Raises UnwritableError.
    """
    root = os.environ.get("XDG_STATE_HOME", "")
    folder = (Path(root) if root.startswith("/") else Path.home() / ".local" / "state") / "hillclimb"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(f"{folder} cannot be made ({error.strerror}); set XDG_STATE_HOME") from error
    return folder


def write_atomically(path: Path, text: str) -> None:
    """All of `text` or nothing, on the disk when this returns; others may read it. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()  # of a process of this number that was killed
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_regular_file(path: Path) -> bytes | None:
    """What a plain file holds; None where there is no file. Raises OSError for anything else, a link included."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a plain file")
        return file.read(MAX_FILE_BYTES)


def is_own(path: Path) -> bool:
    """Whether this user or root owns it, and nobody else may change it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
