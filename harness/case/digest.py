"""Digests of the fixed side: contract, benchmarks and harness, put into every record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import harness
from harness.case.case import Case


def digest_files(root: Path, files: Iterable[Path]) -> str:
    """sha256 over names (relative to root) and contents, in sorted order."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def contract_digest(case: Case) -> str:
    return digest_files(case.folder, [p for p in case.fixed_files() if p.parent == case.folder])


def benchmarks_digest(case: Case) -> str:
    return digest_files(case.folder, [p for p in case.fixed_files() if p.parent != case.folder])


def harness_digest() -> str:
    root = Path(harness.__file__).parent
    return digest_files(root, root.rglob("*.py"))
