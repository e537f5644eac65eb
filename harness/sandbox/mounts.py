"""bubblewrap options for the mounts that differ from machine to machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.sandbox import interpreter


def code() -> Iterator[str]:
    """Mount what the interpreter needs; links stay links, and their targets come too."""
    for path in interpreter.paths():
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
            yield from _targets(path)
        else:
            yield from ("--ro-bind", str(path), str(path))


def _targets(path: Path) -> Iterator[str]:
    granted = [outer for outer in interpreter.paths() if not outer.is_symlink()]
    for target in interpreter.links(path):
        named = Path(os.path.normpath(target))
        if not named.is_symlink() and not any(named.is_relative_to(outer) for outer in granted):
            yield from ("--ro-bind", str(named), str(named))


def proc_controls() -> Iterator[str]:
    """Read-only mounts over all of /proc that is not about processes: sysctls, sysrq, mtrr, irq and their like."""
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        if entry.is_dir() or entry.stat().st_mode & 0o222:
            yield from ("--ro-bind", str(entry), str(entry))
