"""The lock of a GPU with real processes: killed, of other users, on files that come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.device.gpu.lock import GpuLock, lock_holder
from hillclimb.harness.device.gpu.state_files import shared_folder
from hillclimb.harness.errors import MachineError

ROOT = Path(__file__).resolve().parents[3]
TAKE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from hillclimb.harness.device.gpu.lock import GpuLock
lock = GpuLock("GPU-1", Path({folder!r}))
print("held", flush=True)
sys.stdin.read()
"""


def take(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TAKE.format(root=str(ROOT), folder=str(folder))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_holder_at_a_time_and_it_is_named(tmp_path: Path) -> None:
    with take(tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(MachineError, match=rf"pid {other.pid} \(.*\) has locked .*GPU-1.lock"):
            GpuLock("GPU-1", tmp_path)
        assert lock_holder(tmp_path / "hillclimb-GPU-1.lock") == other.pid
        GpuLock("GPU-2", tmp_path).close()
        other.send_signal(signal.SIGKILL)
    GpuLock("GPU-1", tmp_path).close()


def test_letting_go_twice_does_no_harm(tmp_path: Path) -> None:
    lock = GpuLock("GPU-1", tmp_path)
    lock.close()
    other = os.open("/dev/null", os.O_RDONLY)
    lock.close()
    os.fstat(other)
    os.close(other)


def test_a_program_started_meanwhile_does_not_keep_it(tmp_path: Path) -> None:
    lock = GpuLock("GPU-1", tmp_path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.close()
        GpuLock("GPU-1", tmp_path).close()
        child.kill()


def test_a_file_that_was_removed_is_no_longer_the_lock(tmp_path: Path) -> None:
    first = GpuLock("GPU-1", tmp_path)
    first.path.unlink()
    second = GpuLock("GPU-1", tmp_path)
    with pytest.raises(MachineError, match="another judge holds it"):
        GpuLock("GPU-1", tmp_path)
    second.close()
    first.close()


def test_a_link_or_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hillclimb-GPU-1.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="cannot be opened"):
        GpuLock("GPU-1", tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    os.mkfifo(tmp_path / "hillclimb-GPU-2.lock")
    with pytest.raises(MachineError, match="is not a plain file"):
        GpuLock("GPU-2", tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another user")
def test_another_users_lock_counts_whatever_the_umask(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"hillclimb-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    try:
        previous = os.umask(0o077)
        lock = GpuLock("GPU-1", folder)
        os.umask(previous)
        other = subprocess.run(
            ["/bin/sh", "-c", f"flock -n {lock.path} true; echo $?"],
            user=65534,
            capture_output=True,
            text=True,
        )
        assert other.stdout == "1\n", other.stderr
        lock.close()
        (folder / "hillclimb-GPU-2.lock").touch(mode=0o644)
        os.chown(folder / "hillclimb-GPU-2.lock", 65534, 65534)
        GpuLock("GPU-2", folder).close()
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_the_shared_folder_is_everybodys() -> None:
    assert shared_folder().stat().st_mode & 0o1007 == 0o1007
