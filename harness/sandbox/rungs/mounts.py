"""bubblewrap options for the mounts that differ from machine to machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path

from hillclimb.harness.sandbox import interpreter


def interpreter_options() -> tuple[str, ...]:
    """Mount what the interpreter needs; links stay links, and their targets come too."""
    return _mounts(interpreter.readable_paths())


@cache
def _mounts(paths: tuple[Path, ...]) -> tuple[str, ...]:
    options: list[str] = []
    for path in paths:
        if path.is_symlink():
            options += ("--symlink", str(path.readlink()), str(path), *_targets(path, paths))
        else:
            options += ("--ro-bind", str(path), str(path))
    return tuple(options)


def _targets(path: Path, paths: tuple[Path, ...]) -> Iterator[str]:
    granted = [outer for outer in paths if not outer.is_symlink()]
    for target in interpreter.symlink_chain(path):
        named = Path(os.path.normpath(target))
        if not named.is_symlink() and not any(named.is_relative_to(outer) for outer in granted):
            yield from ("--ro-bind", str(named), str(named))


def same_path_options(option: str, paths: Iterable[str]) -> Iterator[str]:
    """One mount each, under the same name inside as outside."""
    for path in paths:
        yield from (option, path, path)


def empty_folders(place: Path, inside: str, names: Iterable[str]) -> Iterator[str]:
    """Nothing in the place of those of these folders that `place` has, which is mounted as `inside`."""
    for name in names:
        if (place / name).is_dir():
            mounted = f"{inside}/{name}"
            yield from ("--perms", "0555", "--size", "4096", "--tmpfs", mounted, "--remount-ro", mounted)


def proc_controls() -> Iterator[str]:
    """Read-only mounts over all of /proc that is not about processes: sysctls, sysrq, mtrr, irq and their like.

    Looked up for every border, since a driver that is loaded adds its own.
    """
    with os.scandir("/proc") as entries:
        found = [entry for entry in entries if not entry.name.isdigit() and not entry.is_symlink()]
    for entry in sorted(found, key=attrgetter("name")):
        if entry.is_dir() or entry.stat().st_mode & 0o222:
            yield from ("--ro-bind", entry.path, entry.path)
