"""Carries a change over to files that have changed meanwhile, with git's own three-way merge of each file."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.proposal import Edit
from harness.errors import MachineError, StorageError

_SECONDS = 60.0
_WIDTH = 61
"""Characters of a conflict's marker lines, so that no line of a file is taken for one."""
_MOST_NAMED = 10


class Conflict(ValueError):
    """The change does not fit the files as they are today; the message names files and lines."""


def merge(base: Mapping[str, str], proposed: Mapping[str, str], ours: Mapping[str, str]) -> tuple[Edit, ...]:
    """What makes of our files what the change from `base` to `proposed` made of its own; empty where it is in them.

    Each is a whole set of files by path. Raises Conflict where both sides changed the same or adjacent lines,
    MachineError where git cannot be run.
    """
    changed = sorted(path for path in {*base, *proposed} if base.get(path) != proposed.get(path))
    edits: list[Edit] = []
    conflicts: list[str] = []
    for path in changed:
        try:
            content = _merge_one(path, base.get(path), proposed.get(path), ours.get(path))
        except Conflict as conflict:
            conflicts.append(str(conflict))
            continue
        if content != ours.get(path):
            edits.append(Edit(path=path, content=content))
    if conflicts:
        raise Conflict(_join(conflicts))
    return tuple(edits)


def undo(before: Mapping[str, str], after: Mapping[str, str], now: Mapping[str, str]) -> tuple[Edit, ...]:
    """Edits that take the change from `before` to `after` back out of today's files. Raises Conflict."""
    return merge(after, before, now)


def _merge_one(path: str, base: str | None, proposed: str | None, ours: str | None) -> str | None:
    """One file as it comes out; None where it is gone."""
    if ours in (base, proposed):
        return proposed
    if proposed is None:
        raise Conflict(f"{path} is to be removed, and has changed meanwhile")
    if ours is None:
        raise Conflict(f"{path} is to be changed, and is gone meanwhile")
    if "\0" in f"{base}{proposed}{ours}":
        raise Conflict(f"{path} is no text and has changed on both sides")
    return _merge_texts(path, base or "", proposed, ours)


def _merge_texts(path: str, base: str, proposed: str, ours: str) -> str:
    with tempfile.TemporaryDirectory(prefix="hillclimb-merge-") as folder:
        output, status = _run_git(Path(folder), {"ours": ours, "base": base, "proposed": proposed})
    if status == 0:
        return output
    where = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in _spans(output))
    raise Conflict(f"{path} has changed meanwhile where the change would change it (lines {where})")


def _run_git(folder: Path, texts: Mapping[str, str]) -> tuple[str, int]:
    """What `git merge-file` prints, and how many conflicts it found."""
    command = ["git", "-c", "merge.conflictStyle=merge", "merge-file", "--stdout", "--quiet"]
    try:
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode())
        done = subprocess.run(
            [*command, f"--marker-size={_WIDTH}", *texts],
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            process_group=0,
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"git merge-file: not done within {_SECONDS:.0f} s") from None
    except FileNotFoundError:
        raise MachineError("git is not installed, or not on PATH; install git 2.30 or newer") from None
    except OSError as error:
        raise StorageError(f"git merge-file: {error}; free or mend the disk of {folder}") from None
    if not 0 <= done.returncode < 128:
        said = done.stderr.decode(errors="replace").strip() or "no message"
        raise MachineError(f"git merge-file: {said}")
    return done.stdout.decode(), done.returncode


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's: no configuration, no repository around, no other language."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }


def _spans(merged: str) -> Iterator[tuple[int, int]]:
    """The lines of our file that each conflict covers, counted from 1."""
    line, first, side = 0, 0, ""
    for text in merged.split("\n"):
        mark = text[:1] * _WIDTH if text[:_WIDTH] == text[:1] * _WIDTH else ""
        if mark.startswith("<"):
            first, side = line + 1, "ours"
        elif mark.startswith("=") and side == "ours":
            side = "theirs"
        elif mark.startswith(">") and side == "theirs":
            yield first, max(first, line)
            side = ""
        elif side != "theirs":
            line += 1


def _join(conflicts: list[str]) -> str:
    more = len(conflicts) - _MOST_NAMED
    return "; ".join(conflicts[:_MOST_NAMED]) + (f"; and {more} more files" if more > 0 else "")
