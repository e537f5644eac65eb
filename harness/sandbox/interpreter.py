"""Which host paths this Python needs to run and import, wherever it was installed.

Narrow on purpose: folders of code, never a whole prefix, so that a lab checked out under /usr/src, a conda
prefix or beside its own .venv stays invisible.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import harness

SYSTEM = (
    "/usr/bin /usr/lib /usr/lib32 /usr/lib64 /usr/libx32 /usr/sbin /usr/local/lib /usr/local/lib64 "
    "/bin /lib /lib32 /lib64 /libx32 /sbin /nix/store /gnu/store "
    "/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/alternatives"
)
"""The loader, libc and shared libraries, on every distribution known."""

PARTS = ("bin", "lib", "lib32", "lib64", "pyvenv.cfg")
"""What a Python prefix is made of."""


def package() -> Path:
    """The `harness` package's folder on the host."""
    return Path(harness.__path__[0]).resolve()


def paths() -> tuple[Path, ...]:
    """Existing paths to grant for reading, as named (symlinks unresolved), outermost first, none nested."""
    kept: list[Path] = []
    for path in sorted(set(_candidates()), key=lambda path: len(path.parts)):
        if path.exists() and not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return tuple(kept)


def _candidates() -> Iterator[Path]:
    yield from map(Path, SYSTEM.split())
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield from (Path(prefix, part) for part in PARTS)
    for kind in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(kind))
    yield from links(Path(sys.executable))


def links(path: Path) -> Iterator[Path]:
    """A path and every target on its chain of symlinks, each absolute."""
    seen: set[Path] = set()
    while path not in seen:
        seen.add(path)
        yield path
        if path.is_symlink():
            path = path.parent / path.readlink()
