"""Temporary folders of a judge that outlive no judge: each is locked, and what a killed one left behind is swept.

The private folder of a candidate without a mount namespace is one: scratch, links, and what to do with the remains.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.confinement import Confinement, SandboxLayout

SHARED_MEMORY = Path("/dev/shm")
MAX_PATH_CHARS = 3000
"""Characters; the kernel takes 4096 at most."""

MIN_STALE_AGE_SECONDS = 60
"""A folder changed less than this ago may be one that a judge is about to lock."""


PREFIX = "hillclimb-locked-"


@dataclass(frozen=True)
class LockedFolder:
    """A temporary folder in use: a lock held by the judge tells later judges so."""

    path: Path
    lock_descriptor: int

    @classmethod
    def make(cls, what: str, place: Path | None = None) -> LockedFolder:
        """Create one for `what` in `place`, by default the usual one for temporary files."""
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}-", dir=place))
        lock = os.open(path / "in-use", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    def remove(self) -> None:
        """Delete everything, for once and all."""
        empty_nested_folder(self.path / "scratch")
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock_descriptor)


@dataclass(frozen=True)
class CandidateFolder:
    """A candidate's: the scratch, and links to the lab's package and the workspace."""

    locked: LockedFolder

    @property
    def path(self) -> Path:
        return self.locked.path

    @property
    def layout(self) -> SandboxLayout:
        """The paths the candidate uses."""
        return SandboxLayout(*(str(self.path / name) for name in ("workspace", "scratch", "lab")))

    @classmethod
    def make(cls, place: Path, confinement: Confinement, uid: int | None) -> CandidateFolder:
        """Create one in `place`."""
        folder = cls(LockedFolder.make("sandbox", place))
        path = folder.path
        inside = path / "lab" / "hillclimb"
        inside.mkdir(parents=True)
        (inside / "__init__.py").symlink_to(interpreter.package_init_file())
        (inside / "harness").symlink_to(interpreter.harness_folder())
        (path / "workspace").symlink_to(confinement.workspace.resolve())
        (path / "scratch").mkdir(mode=0o700)
        if uid is not None:
            os.chown(path / "scratch", uid, uid)
            path.chmod(0o711)
        return folder

    def used_bytes(self) -> int:
        """Bytes in the scratch folder; as good as infinite where it is nested too deep to look."""
        total, folders = 0, [str(self.path / "scratch")]
        while folders:
            folder = folders.pop()
            if len(folder) > MAX_PATH_CHARS:
                return sys.maxsize
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        return total

    def remove(self) -> None:
        """Delete everything, for once and all."""
        self.locked.remove()


def remove_stale(place: Path) -> None:
    """Remove what killed judges of this user have left in `place`; others' folders are not ours to open."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not ours or time.time() - found.st_mtime < MIN_STALE_AGE_SECONDS:
                continue
            lock = os.open(path / "in-use", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                LockedFolder(path, lock).remove()


def empty_nested_folder(top: Path) -> None:
    """Empty a folder that may be sealed, or nested deeper than a path can name: lift every level to the top.

    What cannot be deleted is left for the next judge's sweep.
    """
    lifted = itertools.count()
    with suppress(OSError):
        while folders := [path for path in top.iterdir() if path.is_dir() and not path.is_symlink()]:
            for folder in folders:
                folder.chmod(0o700)
                for child in folder.iterdir():
                    if child.is_dir() and not child.is_symlink():
                        child.chmod(0o700)  # moving a folder takes the right to write in it
                    child.rename(top / f"lifted {next(lifted)} {secrets.token_hex(8)}")
                folder.rmdir()


def choose_parent_folder(size: int) -> Path:
    """A folder in memory where `size` fits twice over, else the usual place for temporary files."""
    if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(SHARED_MEMORY).free > 2 * size:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def remove_stale_folders() -> None:
    """Remove what killed judges of this user have left, wherever folders are made."""
    for place in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        remove_stale(place)
