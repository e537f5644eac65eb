"""What Triton left in a candidate's cache, copied out by the judge and handed to later processes of the same side.

Only who may read it is guarded here: a side's kernels go to processes of that side alone, or to the compilation of a
candidate that starts from it. What they contain was written by the side itself, so the pairs from which a speedup is
reported use those of a compilation that started from nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

MAX_BYTES = 128 << 20
MAX_FILES = 4000
MAX_LOOKS = 2 * MAX_FILES
"""At what is found; what is too long, or no file, takes time as well."""

TUNED = ".autotune.json"
"""What Triton's autotuner chose; where nothing is launched, by chance."""

PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = PLAIN | os.O_DIRECTORY


def copy_kernels(scratch: Path, name: str, target: Path) -> int:
    """Copy the plain files of the folder `name` in a candidate's scratch, one folder deep; how many.

    What lies there may change at any moment, so no link is ever followed: every step opens one name below a descriptor.
    Files beyond the limits are left out.
    """
    copied, left = 0, MAX_BYTES
    with (
        _opened(str(scratch), os.O_RDONLY | os.O_DIRECTORY, None) as root,
        _opened(name, FOLDER, root) as top,
    ):
        for folder, file, inner in islice(_places(top), MAX_LOOKS):
            data = _read(file, inner, left)
            if data is None:
                continue
            copy = target / folder / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
            copied, left = copied + 1, left - len(data)
            if copied == MAX_FILES:
                break
    return copied


def _places(top: int | None) -> Iterator[tuple[str, str, int | None]]:
    """Folder, name and the folder's descriptor of whatever lies one folder below an open one."""
    for name in _names(top)[:MAX_FILES]:
        with _opened(name, FOLDER, top) as inner:
            for file in _names(inner):
                if not file.endswith(TUNED):
                    yield name, file, inner


def _names(folder: int | None) -> list[str]:
    if folder is None:
        return []
    return sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor, which no path can replace


def _read(name: str, folder: int | None, most: int) -> bytes | None:
    """A plain file's bytes; None where it is none, or too long."""
    with _opened(name, PLAIN, folder) as descriptor:
        found = None if descriptor is None else os.fstat(descriptor)
        if descriptor is None or found is None or not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with suppress(OSError), os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(most + 1)
            return data if len(data) <= most else None
    return None


@contextmanager
def _opened(name: str, flags: int, below: int | None) -> Iterator[int | None]:
    """A descriptor for one name; None where it cannot be opened so."""
    try:
        descriptor = os.open(name, flags, dir_fd=below)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
