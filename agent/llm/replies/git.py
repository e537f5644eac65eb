"""Git's own three-way merge of three texts, with nothing of the user's git in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hillclimb.harness.errors import MachineError
from hillclimb.harness.os_errors import translated_os_errors

CONFLICT_MARKER_CHARS = 61
"""Characters of a conflict's marker lines, so that no line of a file is taken for one."""
_TIMEOUT_SECONDS = 60.0


def merge_file(base: str, proposed: str, ours: str, *options: str) -> tuple[str, int]:
    """What `git merge-file` prints, and how many conflicts it found. Raises MachineError where it cannot be run."""
    texts = {"ours": ours, "base": base, "proposed": proposed}
    with (
        translated_os_errors("git merge-file"),
        tempfile.TemporaryDirectory(prefix="hillclimb-merge-") as folder,
    ):
        return _run(Path(folder), texts, options)


def _run(folder: Path, texts: dict[str, str], options: tuple[str, ...]) -> tuple[str, int]:
    command = ["git", "-c", "merge.conflictStyle=merge", "merge-file", "--stdout", "--quiet", *options]
    try:
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode())
        done = subprocess.run(
            [*command, f"--marker-size={CONFLICT_MARKER_CHARS}", *texts],
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
            process_group=0,
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"git merge-file: not done within {_TIMEOUT_SECONDS:.0f} s") from None
    except FileNotFoundError:
        raise MachineError("git is not installed, or not on PATH; install git 2.30 or newer") from None
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
