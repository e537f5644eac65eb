"""Folders that several processes know of: of one set of settings, held by one at once, never left with half a file."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from hillclimb.harness.errors import UsageError
from hillclimb.harness.records.record import Record


def claim(folder: Path, name: str, settings: Record) -> None:
    """The folder is of these settings from now on; they stand in its file of this name.

    Raises UsageError where it is of others, or cannot be made.
    """
    _make(folder)
    path = folder / name
    if not path.exists():
        write(path, settings.model_dump_json(by_alias=True, indent=1) + "\n")
        return
    kind = type(settings)
    try:
        before = kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(
            f"{path} is not of this kind ({error.error_count()} slips); give another folder"
        ) from None
    unlike = [
        f"{field} {getattr(before, field)} and now {getattr(settings, field)}"
        for field in kind.model_fields
        if getattr(before, field) != getattr(settings, field)
    ]
    if unlike:
        raise UsageError(f"{folder} has times of other settings: {'; '.join(unlike)}. Give another folder")


@contextmanager
def locked(folder: Path, *, shared: bool = False, waits: bool = False) -> Iterator[None]:
    """For this process alone, or with others that want it shared. Makes the folder.

    Raises UsageError where another process has it, unless this one waits for it.
    """
    _make(folder)
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(opened, kind)
        except BlockingIOError:
            raise UsageError(f"another process is at work in {folder}; give another folder") from None
        yield
    finally:
        os.close(opened)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror}); give another folder") from None


def write(path: Path, text: str) -> None:
    """All of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def sha256_of(path: Path) -> str:
    """Of the file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
