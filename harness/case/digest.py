"""Digests of the fixed side: contract, benchmarks and harness, put into every record.

The harness's digest covers what judges and nothing else: a report, a plot or a study may change while a run is open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import hillclimb
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CaseError

JUDGING_ROOMS = (
    "__init__.py",
    "harness/__init__.py",
    "harness/candidate",
    "harness/case",
    "harness/channel",
    "harness/device",
    "harness/duel",
    "harness/engagement",
    "harness/errors.py",
    "harness/judge",
    "harness/knobs",
    "harness/os_errors.py",
    "harness/policy",
    "harness/profile",
    "harness/records",
    "harness/sandbox",
    "harness/serving",
    "harness/sources",
    "harness/statistics",
    "harness/surfaces",
    "harness/wording.py",
    "harness/yaml_errors.py",
)
"""Everything that the judge's process and the candidate's import, by path below the package `hillclimb`."""


def digest_files(root: Path, files: Iterable[Path]) -> str:
    """sha256 over names (relative to root) and contents, in sorted order. CaseError where one cannot be read."""
    total = hashlib.sha256()
    for path in sorted(files):
        try:
            content = path.read_bytes()
        except OSError as error:
            remedy = "make it a readable file, or move it out of the case"
            raise CaseError(path, "", f"cannot be read ({error.strerror or error})", remedy) from None
        total.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def contract_digest(case: Case) -> str:
    """Over every fixed file but those below benchmarks/."""
    return digest_files(case.folder, [path for path in case.fixed_files() if not _is_benchmark(case, path)])


def benchmarks_digest(case: Case) -> str:
    return digest_files(case.folder, [path for path in case.fixed_files() if _is_benchmark(case, path)])


def _is_benchmark(case: Case, path: Path) -> bool:
    return path.relative_to(case.folder).parts[0] == "benchmarks"


def judging_files(package: Path) -> list[Path]:
    """The Python files below a copy of `hillclimb` that decide what a win is, sorted."""
    rooms = (package / room for room in JUDGING_ROOMS)
    return sorted(file for room in rooms for file in (room.rglob("*.py") if room.is_dir() else [room]))


def harness_digest(package: Path = Path(hillclimb.__path__[0])) -> str:
    """Over the judging rooms as they are on the disk; read again where a file's time, size or inode says so."""
    files = judging_files(package)
    return _digest_as_of(package, tuple((path, *_state(path)) for path in files))


@lru_cache(maxsize=4)
def _digest_as_of(root: Path, states: tuple[tuple[Path, int, int, int], ...]) -> str:
    return digest_files(root, [path for path, *_ in states])


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
