"""Files that this process cannot open any more: what is loaded stays loaded, and no second copy of it can be made.

By Landlock (Documentation/userspace-api/landlock.rst): reading files is allowed below every folder but the hidden ones.
Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from hillclimb.harness.channel.process_filter import renounce_privileges

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls, of the same numbers on every machine."""

READ_FILE, BELOW_PATH = 1 << 2, 1
"""A right, and a kind of rule."""


SYSTEM = tuple(
    Path("/", name)
    for name in "bin dev etc gnu lib lib32 lib64 nix opt proc run sbin sys usr".split()  # noqa: SIM905
)
"""Folders of a machine at the root, which a border may forbid to list."""


def hide_files(hidden: Collection[Path], needed: Collection[Path] = ()) -> bool:
    """Whether the kernel can; from then on, opening a hidden file, or one in a hidden folder, fails with EACCES.

    So does opening what is put later into a folder that holds a hidden one, at any depth. Where such a folder cannot be
    listed, of what lies in it the `needed` paths, Python's own and the system's stay.

    Raises OSError where a kernel that has Landlock refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hidden or libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) < 1:
        return False
    attributes = struct.pack("=Q", READ_FILE)
    ruleset = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(ruleset)
    python = (
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *filter(None, sys.path),
        os.environ.get("TMPDIR", "/tmp"),
    )
    known = {*SYSTEM, *needed, *map(Path, python)}
    known |= {path.resolve() for path in known}
    for path in _visible(Path("/"), {path.resolve() for path in hidden}, known):
        _allow(libc, ruleset, path)
    renounce_privileges()
    _check(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    return True


def _visible(folder: Path, hidden: set[Path], known: set[Path]) -> Iterator[Path]:
    """Paths that together hold all below `folder` but what is hidden."""
    if folder in hidden:
        return
    if not any(path.is_relative_to(folder) for path in hidden):
        yield folder
        return
    for entry in _entries(folder, hidden | known):
        if not entry.is_symlink():  # what it points to has a rule of its own
            yield from _visible(entry, hidden, known)


def _entries(folder: Path, known: set[Path]) -> list[Path]:
    """What lies in a folder; of one that cannot be listed, what is known to."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        below = (path.relative_to(folder).parts for path in known if path.is_relative_to(folder))
        return sorted({folder / parts[0] for parts in below if parts})


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot be named cannot be read
    rule = struct.pack("=Qi", READ_FILE, place)
    added = libc.syscall(ADD_RULE, ruleset, BELOW_PATH, rule, 0)
    os.close(place)
    _check(added)


def _check(answer: int) -> None:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
