"""One judge a GPU: a lock that all users of a machine see, and that ends with the process that holds it.

The lock is flock's, on an empty file named by the GPU's UUID in a folder that everybody shares. The file says nothing
and is never removed: whoever holds the lock is read out of /proc/locks, so nothing of it can be stale. Children do not
inherit the descriptor through exec, so a candidate cannot keep a GPU locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from hillclimb.harness.device.gpu.nvml import process_name
from hillclimb.harness.errors import MachineError


class GpuLock:
    """Held from construction to `close`, or to the end of this process, kill -9 included. Raises MachineError."""

    def __init__(self, uuid: str, folder: Path) -> None:
        self.path = folder / f"hillclimb-{uuid}.lock"
        self._descriptor = _locked(self.path)

    def close(self) -> None:
        """Let go; more than once does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_holder(path: Path) -> int | None:
    """Pid of the process that holds the flock on a file, in this pid namespace; None where it is not to be seen."""
    found = path.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if "->" not in fields and fields[1] == "FLOCK" and fields[5] == place and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _locked(path: Path) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise MachineError(_taken(path)) from None
        except OSError as error:
            os.close(descriptor)
            raise MachineError(f"{path} cannot be locked ({error.strerror})") from error
        if _is_still_there(path, descriptor):
            return descriptor
        os.close(descriptor)  # somebody removed it in between: a lock on it excludes nobody


def _open(path: Path) -> int:
    """A descriptor of the file, made where it is missing.

    First without O_CREAT: where fs.protected_regular is set, opening another user's file with it fails.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for attempt in (flags, flags | os.O_CREAT | os.O_EXCL, flags):
        try:
            descriptor = os.open(path, attempt, 0o644)
        except (FileNotFoundError, FileExistsError):
            continue
        except OSError as error:
            raise MachineError(
                f"{path} cannot be opened ({error.strerror}); remove it as its owner or as root"
            ) from error
        if attempt & os.O_CREAT:
            os.fchmod(descriptor, 0o644)  # whatever the umask: others must be able to open it
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise MachineError(f"{path} is not a plain file; remove it as its owner or as root")
        return descriptor
    raise MachineError(f"{path} comes and goes; see who removes it")


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _taken(path: Path) -> str:
    pid = lock_holder(path)
    who = "a process that is not visible here" if pid is None else f"pid {pid} ({process_name(pid)})"
    return f"another judge holds it: {who} has locked {path}; wait until it is done, or choose another GPU"
