"""Which host paths this Python, a C compiler and the CUDA libraries need, wherever they were installed.

Narrow on purpose: folders of code, never a whole prefix, so that a lab checked out under /usr/src, a conda
prefix or beside its own .venv stays invisible.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hillclimb
import hillclimb.harness

SYSTEM = (
    "/usr/bin /usr/lib /usr/lib32 /usr/lib64 /usr/libx32 /usr/sbin /usr/local/lib /usr/local/lib64 "
    "/bin /lib /lib32 /lib64 /libx32 /sbin /nix/store /gnu/store "
    "/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/alternatives "
    "/usr/include /usr/libexec /usr/local/include /usr/local/bin /usr/local/nvidia /opt/nvidia"
)
"""The loader, libc, shared libraries, a C compiler with its headers, and a driver put in from outside a container."""

TOOLKITS = "/usr/local"
"""Where CUDA toolkits lie: `cuda`, a link, and `cuda-13.0` or the like."""

PARTS = ("bin", "include", "lib", "lib32", "lib64", "pyvenv.cfg")
"""What a Python prefix is made of."""


@cache
def harness_folder() -> Path:
    """The folder of `hillclimb.harness` on the host."""
    return Path(hillclimb.harness.__path__[0]).resolve()


@cache
def package_init_file() -> Path:
    """The `__init__.py` of `hillclimb` on the host: all of it that candidates see beside `package()`."""
    return Path(hillclimb.__path__[0], "__init__.py").resolve()


@cache
def search_folder() -> Path:
    """The folder on the host from which `hillclimb` is imported."""
    return Path(hillclimb.__path__[0]).parent


def readable_paths() -> tuple[Path, ...]:
    """Existing paths to grant for reading, as named (symlinks unresolved), outermost first, none nested."""
    return _outermost((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix), sys.executable)


@cache
def _outermost(prefixes: tuple[str, ...], executable: str) -> tuple[Path, ...]:
    """Looked up once in a process: some 40 ms, for every candidate that is started."""
    kept: list[Path] = []
    candidates = frozenset(_candidates(prefixes, executable))
    for path in sorted(candidates, key=lambda path: len(path.parts)):
        if path.exists() and not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return tuple(kept)


def loader_variables() -> dict[str, str]:
    """The variables by which programs, and libraries like the driver's, are found inside."""
    programs = [f"{TOOLKITS}/cuda/bin", "/usr/bin", "/bin"]
    found = {"PATH": ":".join(folder for folder in programs if _is_folder(folder))}
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    libraries = [folder for folder in searched if _is_granted(folder, readable_paths())]
    return {**found, "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else found


@cache
def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


@cache
def _is_granted(folder: str, granted: tuple[Path, ...]) -> bool:
    """Whether a folder of the judge's own search path lies, links resolved, in what every candidate may read."""
    path = Path(folder)
    if not path.is_absolute() or not path.is_dir():
        return False
    return any(path.resolve().is_relative_to(outer.resolve()) for outer in granted)


def _candidates(prefixes: tuple[str, ...], executable: str) -> Iterator[Path]:
    yield from map(Path, SYSTEM.split())
    yield from Path(TOOLKITS).glob("cuda*")
    for prefix in prefixes:
        yield from (Path(prefix, part) for part in PARTS)
    for kind in ("stdlib", "platstdlib", "purelib", "platlib", "include", "platinclude"):
        yield Path(sysconfig.get_path(kind))
    yield from symlink_chain(Path(executable))


def symlink_chain(path: Path) -> Iterator[Path]:
    """A path and every target on its chain of symlinks, each absolute."""
    seen: set[Path] = set()
    while path not in seen:
        seen.add(path)
        yield path
        if path.is_symlink():
            path = path.parent / path.readlink()
