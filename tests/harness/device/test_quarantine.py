"""A quarantine holds until a person lifts it or the machine boots; what cannot be read holds as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hillclimb.harness.device.gpu import state_files
from hillclimb.harness.device.gpu.quarantine import Quarantine
from hillclimb.harness.device.gpu.state_files import read_regular_file, write_atomically
from hillclimb.harness.errors import MachineError


def test_none_is_none(tmp_path: Path) -> None:
    Quarantine("GPU-1", tmp_path).require_none()


def test_it_names_reason_process_time_and_remedy(tmp_path: Path) -> None:
    Quarantine("GPU-1", tmp_path).impose("candidate 7 could not be ended", os.getpid())
    with pytest.raises(
        MachineError, match=rf"candidate 7 could not be ended \(pid {os.getpid()}, still there"
    ):
        Quarantine("GPU-1", tmp_path).require_none()
    with pytest.raises(MachineError, match=rf"in quarantine since {time.strftime('%Y')}-.*rm '{tmp_path}"):
        Quarantine("GPU-1", tmp_path).require_none()
    Quarantine("GPU-2", tmp_path).require_none()


def test_a_boot_voids_it(tmp_path: Path) -> None:
    Quarantine("GPU-1", tmp_path, boot_id="before").impose("hung", 1)
    Quarantine("GPU-1", tmp_path).require_none()
    Quarantine("GPU-1", tmp_path).impose("hung", 1)
    with pytest.raises(MachineError):
        Quarantine("GPU-1", tmp_path).require_none()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"reason": "x"}', "\udcff"])
def test_a_note_that_cannot_be_read_counts(tmp_path: Path, text: str) -> None:
    quarantine = Quarantine("GPU-1", tmp_path)
    quarantine.path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(MachineError, match="the note cannot be read"):
        quarantine.require_none()


def test_a_link_in_its_place_counts(tmp_path: Path) -> None:
    quarantine = Quarantine("GPU-1", tmp_path)
    quarantine.path.symlink_to("/dev/null")
    with pytest.raises(MachineError, match="the note cannot be read"):
        quarantine.require_none()


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="quarantine could not be written"):
        Quarantine("GPU-1", tmp_path / "missing").impose("hung", 1)


def test_killed_at_any_moment_the_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_atomically(path, "0" * 4000)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(state_files.__file__).parents[2])!r})\n"
        "from pathlib import Path\nfrom hillclimb.harness.device.gpu.state_files import write_atomically\n"
        f"for n in range(10**6): write_atomically(Path({str(path)!r}), str(n % 10) * 4000)"
    )
    for pause in (0.0, 0.01, 0.02, 0.03, 0.05):
        with subprocess.Popen([sys.executable, "-c", code]) as writer:
            before = path.stat().st_ino
            while path.stat().st_ino == before:
                time.sleep(0.005)
            time.sleep(pause)
            writer.send_signal(signal.SIGKILL)
        found = (read_regular_file(path) or b"").decode()
        assert len(found) == 4000
        assert len(set(found)) == 1
    write_atomically(path, "after")
    assert path.read_text() == "after"
