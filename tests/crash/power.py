"""What a folder would hold after a power cut: names and contents as they were flushed last, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Names = dict[str, int]
"""What a folder's entries are called -> their inodes."""


class PowerCut:
    """Sees every fsync of this process below `root`, a folder that is taken to be on the disk as it stands."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._folders: dict[int, Names] = {}
        for folder, _, files in os.walk(root):
            self._note(Path(folder))
            for name in files:
                self._note(Path(folder) / name)

    @contextmanager
    def watching(self) -> Iterator[PowerCut]:
        """Through os.fsync, while this lasts."""
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            self._note(Path(f"/proc/self/fd/{descriptor}").readlink())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            yield self

    def survivors(self, target: Path) -> Path:
        """Write what would be left into the folder `target`, and return it."""
        self._restore(self._root.stat().st_ino, target)
        return target

    def _note(self, path: Path) -> None:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            self._folders[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def _restore(self, folder: int, target: Path) -> None:
        target.mkdir()
        for name, inode in self._folders.get(folder, {}).items():
            if inode in self._folders:
                self._restore(inode, target / name)
            else:
                (target / name).write_bytes(self._contents.get(inode, b""))
