"""As root, the sandbox's tests are run once more by an ordinary user, in a view of the disk that lets it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "test_rungs.py",
        "test_canary.py",
        "test_launched.py",
        "test_prefork.py",
        "test_seal.py",
        "test_grants.py",
    ],
)
def test_the_suite_passes_as_an_ordinary_user(module: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: this is an ordinary user already")
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("unshare and setpriv (util-linux) are not installed")
    module_path = str(Path(__file__).with_name(module))
    with TemporaryDirectory(prefix="hillclimb-user-") as folder:
        options = ["-n0", "-q", "-p", "no:cacheprovider", "-rfEs", f"--basetemp={folder}/home/pytest"]
        result = _run_as_user(Path(folder), sys.executable, "-m", "pytest", *options, module_path)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


def _run_as_user(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as nobody in particular; skips the test where mounts are not permitted."""
    repository = Path(__file__).parents[3]
    needed = [repository, Path(sys.prefix), Path(sys.base_prefix).resolve()]
    parents = {parent for path in needed for parent in path.parents}
    closed = sorted(str(parent) for parent in parents if not parent.stat().st_mode & 0o1)
    home, stash = folder / "home", folder / "stash"
    home.mkdir()
    stash.mkdir()
    os.chown(home, UID, UID)
    folder.chmod(0o755)
    mount = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*mount, "mount", "-t", "tmpfs", "tmpfs", str(stash)], capture_output=True).returncode:
        pytest.skip("no mount namespace to be had here, to open the way to the interpreter")
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
        [*mount, "sh", "-c", ENTER, "enter", *command],
        env=environment, cwd=repository, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
