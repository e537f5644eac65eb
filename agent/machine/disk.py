"""The only file through which the controller writes files: every write is whole, flushed, and fails in one way."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from hillclimb.harness.errors import StorageError, UnwritableError
from hillclimb.harness.os_errors import DISK, OTHERS

T = TypeVar("T")

_REMEDIES = {
    **DISK,
    **OTHERS,
    errno.EACCES: "give this user write permission there",
    errno.EPERM: "give this user write permission there",
    errno.ENOTDIR: "a file is where a folder has to be; move it away",
    errno.EEXIST: "something else is there; move it away",
    errno.EISDIR: "a folder is where a file has to be; move it away",
}


def storage_error(path: Path, error: OSError) -> StorageError:
    """What the disk refused, where, and what to do; UnwritableError where waiting cannot help."""
    kind = StorageError if error.errno in DISK else UnwritableError
    remedy = _REMEDIES.get(error.errno or 0, "make that path writable")
    return kind(f"{path}: {error.strerror or error}; {remedy}")


class Disk:
    """Durable file operations. Raises StorageError, naming path and remedy, where the disk refuses one.

    It is an UnwritableError where waiting cannot help.
    """

    def append(self, path: Path, data: bytes) -> None:
        """Add `data` at the end of the file, on the disk when this returns; only a crash can leave a part of it."""
        new = not path.exists()
        descriptor = self._open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            try:
                self.effect("write", path, lambda: self.write(descriptor, data))
                self.effect("fsync", path, lambda: os.fsync(descriptor))
            except StorageError:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)  # what is torn must not stand before what is appended next
                raise
        finally:
            os.close(descriptor)
        if new:
            self._sync_folder(path.parent)

    def replace(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        """Make the file hold exactly `data`: readers and crashes see the old content or the new, never a mix."""
        beside = path.with_name(f".{path.name}.new")
        descriptor = self._open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        self._write_and_sync(beside, descriptor, data)
        self.rename(beside, path)

    def create(self, path: Path, data: bytes, mode: int) -> None:
        """Write a file that is not there yet. Neither atomic nor flushed: for what nobody trusts after a crash."""
        descriptor = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            self.effect("write", path, lambda: self.write(descriptor, data))
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file, or a folder to where none is; durable when this returns."""
        self.effect("rename", target, lambda: source.replace(target))
        self._sync_folder(target.parent)

    def place(self, source: Path, target: Path) -> None:
        """Move a folder that was made by `create` to where none is; not flushed either."""
        self.effect("rename", target, lambda: source.replace(target))

    def truncate(self, path: Path, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        descriptor = self._open(path, os.O_WRONLY)
        try:
            self.effect("truncate", path, lambda: os.ftruncate(descriptor, size))
            self.effect("fsync", path, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        """Create a folder and those above it, durable when this returns; one that is there already is fine."""
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        if missing:
            self.effect("mkdir", path, lambda: path.mkdir(parents=True, exist_ok=True))
        for folder in missing:
            self._sync_folder(folder.parent)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        if path.exists():
            self.effect("remove", path, lambda: path.unlink(missing_ok=True))

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and all below it; one that is gone already is fine."""
        if path.exists():
            self.effect("remove_folder", path, lambda: shutil.rmtree(path))

    def lock(self, path: Path, owner: bytes) -> int | None:
        """Take a lock that dies with this process, and write its owner into it; None if another one holds it.

        Returns the descriptor that holds it: closing it gives the lock back.
        """
        descriptor = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            self.effect("truncate", path, lambda: os.ftruncate(descriptor, 0))
            self.effect("write", path, lambda: self.write(descriptor, owner))
        except StorageError:
            os.close(descriptor)
            raise
        return descriptor

    def probe(self, folder: Path) -> None:
        """Write and remove a small file in `folder`: raises StorageError while the disk still refuses."""
        self.make_folder(folder)
        trial = folder / ".probe"
        try:
            self.replace(trial, b"\0" * 65536)
        finally:
            trial.with_name(f".{trial.name}.new").unlink(missing_ok=True)
        self.remove(trial)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of `data`, however many system calls it takes."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def effect(self, name: str, path: Path, action: Callable[[], T]) -> T:
        """Do one operation on the file system; the only place where an OSError becomes a StorageError."""
        try:
            return action()
        except OSError as error:
            raise storage_error(path, error) from error

    def _open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        return self.effect("open", path, lambda: os.open(path, flags | os.O_CLOEXEC, mode))

    def _write_and_sync(self, path: Path, descriptor: int, data: bytes) -> None:
        try:
            self.effect("write", path, lambda: self.write(descriptor, data))
            self.effect("fsync", path, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)

    def _sync_folder(self, path: Path) -> None:
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.effect("fsync", path, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)
