"""A GPU on which a process hangs that cannot be ended is used by nobody until a person has looked, or a reboot.

The note is one JSON file a GPU in the folder that all users share. Nothing here touches the GPU: to reset it is a
person's decision, because others may be using it.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from hillclimb.harness.device.gpu.nvml import process_name
from hillclimb.harness.device.gpu.state_files import read_regular_file, write_atomically
from hillclimb.harness.errors import MachineError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class QuarantineNote(BaseModel):
    """Why a GPU is in quarantine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    pid: int
    """The process that hung."""
    time: float
    """Seconds since the epoch."""
    boot_id: str
    """The kernel's own, new with every boot; the note is void after the next."""


class Quarantine:
    """The quarantine of one GPU, whether it is in force or not."""

    def __init__(self, uuid: str, folder: Path, boot_id: str | None = None) -> None:
        self.path = folder / f"hillclimb-{uuid}.quarantine.json"
        self._boot_id = BOOT_ID.read_text().strip() if boot_id is None else boot_id

    def impose(self, reason: str, pid: int) -> None:
        """Write it down. Raises MachineError, which says so, where that cannot be done."""
        note = QuarantineNote(reason=reason, pid=pid, time=time.time(), boot_id=self._boot_id)
        try:
            write_atomically(self.path, note.model_dump_json() + "\n")
        except OSError as error:
            raise MachineError(
                f"{reason} (pid {pid}), and the quarantine could not be written to {self.path} ({error.strerror}); "
                "use no judge on this GPU before a reboot"
            ) from error

    def require_none(self) -> None:
        """Raises MachineError while a quarantine is in force: its reason, and how a person lifts it."""
        try:
            text = read_regular_file(self.path)
            note = None if text is None else QuarantineNote.model_validate_json(text)
        except (OSError, ValidationError) as error:
            said = error.strerror if isinstance(error, OSError) else "it is no quarantine note"
            raise MachineError(
                f"in quarantine, but the note cannot be read ({said}); {self._remedy()}"
            ) from error
        if note is not None and note.boot_id == self._boot_id:
            raise MachineError(f"in quarantine since {_told(note)}; {self._remedy()}")

    def _remedy(self) -> str:
        return (
            "see that the process is gone and `nvidia-smi` answers, then lift the quarantine as the file's owner or "
            f"as root: rm '{self.path}'; a reboot lifts it, too"
        )


def _told(note: QuarantineNote) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(note.time))
    is_there = Path(f"/proc/{note.pid}").is_dir()
    state = f"still there, as {process_name(note.pid)}" if is_there else "gone by now"
    return f"{since}: {note.reason} (pid {note.pid}, {state})"
