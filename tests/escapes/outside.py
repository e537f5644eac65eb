"""The canary's program without a border: what would get out, and what the judge would see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.sandbox.canary import canary
from hillclimb.harness.sandbox.confinement import RungGuarantees
from hillclimb.harness.sandbox.rungs import bubblewrap

ROOT = Path(__file__).resolve().parents[2]

EVERYTHING = RungGuarantees(bubblewrap.NAMESPACES, capabilities=0, scratch_is_bounded=True, variables=())
"""What the strongest rung would promise."""

UID = 61234
"""Of nobody: no process and no file of this machine has it."""

ENTER = """
set -e
umask 022
number=0
for closed in $CLOSED; do        # e.g. a 0700 /root with the interpreter somewhere below
    for needed in $NEEDED; do
        case $needed in "$closed"/*)
            number=$((number + 1)); mkdir "$STASH/$number"; mount --rbind "$needed" "$STASH/$number";;
        esac
    done
    mount -t tmpfs -o mode=0755 tmpfs "$closed"
    number=0
    for needed in $NEEDED; do
        case $needed in "$closed"/*)
            number=$((number + 1)); mkdir -p "$needed"; mount --move "$STASH/$number" "$needed";;
        esac
    done
done
exec setpriv --reuid "$USER_NUMBER" --regid "$USER_NUMBER" --clear-groups "$@"
"""

MOUNT = ("unshare", "--mount", "--propagation", "private")


@dataclass(frozen=True)
class Outcome:
    """What the program says it achieved, by attempt, and what the judge saw for itself."""

    reported: dict[str, bool]
    seen: list[str]

    def out(self) -> list[str]:
        return [name for name, got_out in self.reported.items() if got_out]


def unsandboxed() -> Outcome:
    """Run the program as any other subprocess of ours, every inheritable descriptor left open."""
    with (
        canary.place_bait(EVERYTHING) as lure,
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as output,
    ):
        subprocess.run(
            [sys.executable, "-m", "hillclimb.harness.sandbox.canary.escapes", lure.bait.to_json()],
            cwd=folder,
            stdout=output,
            close_fds=False,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
        output.seek(0)
        reported = json.loads(output.read())
        seen = lure.violations()
    return Outcome(reported, seen)


def run_as_user(folder: Path, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """As root: run a command as nobody in particular, in a view of the disk that lets it reach the interpreter.

    `folder` is new and empty, and will hold its home. LookupError where this machine permits no such view.
    """
    needed = [ROOT, Path(sys.prefix), Path(sys.base_prefix).resolve()]
    parents = {parent for path in needed for parent in path.parents}
    closed = sorted(str(parent) for parent in parents if not parent.stat().st_mode & 0o1)
    home, stash = folder / "home", folder / "stash"
    for path in (home, stash):
        path.mkdir()
    os.chown(home, UID, UID)
    folder.chmod(0o755)
    for trial in (["setpriv", "--version"], [*MOUNT, "mount", "-t", "tmpfs", "tmpfs", str(stash)]):
        try:
            subprocess.run(trial, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LookupError(f"no ordinary user to be had here: {error}") from error
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CLOSED": " ".join(closed[:1]),
        "NEEDED": " ".join(map(str, needed)),
        "STASH": str(stash),
        "USER_NUMBER": str(UID),
    }
    return subprocess.run(
        [*MOUNT, "sh", "-c", ENTER, "enter", *command],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
