"""Everything of a repository and a run that must not depend on how often the climb was killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.world import TAG


def git(root: Path, *arguments: str) -> str:
    """Git as a user runs it, but never writing the index by the way."""
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class State:
    """A run as it ended, and the user's side of the repository."""

    ledger: bytes
    refs: str
    results: str
    samples: Mapping[str, str]
    reached: Mapping[str, int] = field(compare=False, default_factory=dict)

    @classmethod
    def of(cls, root: Path, reached: Mapping[str, int] | None = None) -> State:
        run = root / "runs/demo/toy" / TAG
        lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        return cls(
            ledger=b"".join(line for line in lines if b'"kind":"session"' not in line),
            refs=git(root, "for-each-ref", "refs/heads/hillclimb", "refs/hillclimb"),
            results=(run / "results.tsv").read_text(),
            samples={
                path.name: path.read_text() for path in (run / "samples").iterdir() if path.suffix == ".json"
            },
            reached=reached or {},
        )


def users_side(root: Path) -> dict[str, object]:
    """What a climb may never change, byte for byte."""
    files = [
        path
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in (".git", "runs")
    ]
    own = {name: (root / ".git" / name).read_bytes() for name in ("HEAD", "index", "config")}
    return {
        **{str(path.relative_to(root)): path.read_bytes() for path in files},
        **own,
        "status": git(root, "status", "--porcelain", "--branch"),
        "branches": git(root, "for-each-ref", "refs/heads/work", "refs/tags"),
    }


def complaints(root: Path) -> list[str]:
    """Whatever is wrong with the repository or left over in it; empty when all is well."""
    checked = subprocess.run(
        ["git", "-C", str(root), "fsck", "--full", "--strict"], capture_output=True, text=True
    )
    said = [
        line for line in (checked.stdout + checked.stderr).splitlines() if not line.startswith("dangling")
    ]
    locks = [str(path) for path in root.rglob("*.lock")]
    return said + locks + ([f"fsck ended with {checked.returncode}"] if checked.returncode else [])
