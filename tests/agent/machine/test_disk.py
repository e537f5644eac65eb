from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.agent.machine.disk import Disk, storage_error
from hillclimb.harness.errors import StorageError, UnwritableError


def test_append_adds_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    Disk().append(path, b"one\n")
    Disk().append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_write_that_broke_off_is_taken_back(tmp_path: Path) -> None:
    """Or what is appended next would stand on the same line as its torn half."""

    class Filling(Disk):
        def write(self, descriptor: int, data: bytes) -> None:
            super().write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    Disk().append(path, b"one\n")
    with pytest.raises(StorageError, match="free some space"):
        Filling().append(path, b"two\n")
    Disk().append(path, b"three\n")
    assert path.read_bytes() == b"one\nthree\n"


def test_replace_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    Disk().replace(path, b"old")
    Disk().replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_create_refuses_a_file_that_is_there(tmp_path: Path) -> None:
    Disk().create(tmp_path / "file", b"first", 0o444)
    with pytest.raises(StorageError, match="File exists"):
        Disk().create(tmp_path / "file", b"second", 0o444)


def test_a_full_disk_is_named_with_path_and_remedy() -> None:
    with pytest.raises(StorageError, match="/dev/full: No space left on device; free some space"):
        Disk().append(Path("/dev/full"), b"data")


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnwritableError, match=f"{tmp_path}/folder: Is a directory"):
        Disk().append(tmp_path / "folder", b"data")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_can_pass_is_waited_for(number: int) -> None:
    assert type(storage_error(Path("/x"), OSError(number, os.strerror(number)))) is StorageError


@pytest.mark.parametrize(
    "number", [errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP]
)
def test_what_cannot_pass_is_not(number: int) -> None:
    assert type(storage_error(Path("/x"), OSError(number, os.strerror(number)))) is UnwritableError


def test_probe_leaves_nothing(tmp_path: Path) -> None:
    Disk().probe(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    Disk().remove(tmp_path / "gone")
    Disk().remove_folder(tmp_path / "gone")


def test_a_lock_holds_against_others_and_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys, pathlib, hillclimb.agent.machine.disk\n"
        "print(hillclimb.agent.machine.disk.Disk().lock(pathlib.Path(sys.argv[1]), b'other') is not None, flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout and other.stdout.readline() == "True\n"
    assert Disk().lock(path, b"mine") is None
    assert path.read_bytes() == b"other"
    other.kill()
    other.communicate()
    descriptor = Disk().lock(path, b"mine")
    assert descriptor is not None and path.read_bytes() == b"mine"
    os.close(descriptor)
