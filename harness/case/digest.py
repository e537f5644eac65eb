"""Digests of the fixed side: contract, benchmarks and harness, put into every record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import harness
from harness.case.case import Case
from harness.errors import CaseError


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


def harness_digest() -> str:
    """Over the harness's own source as it is on the disk; read again where a file's time, size or inode says so."""
    root = Path(harness.__file__).parent
    files = sorted(root.rglob("*.py"))
    return _digest_as_of(root, tuple((path, *_state(path)) for path in files))


@lru_cache(maxsize=4)
def _digest_as_of(root: Path, states: tuple[tuple[Path, int, int, int], ...]) -> str:
    return digest_files(root, [path for path, *_ in states])


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
