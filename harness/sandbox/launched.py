"""The rungs without namespaces: Landlock with a user of its own, and, for trusted workspaces, hardly a border.

Both start through `launch`, which confines itself and then becomes the candidate.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import resource
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Literal

from harness.errors import MachineError, SandboxError
from harness.sandbox import interpreter, landlock, privileges
from harness.sandbox.confinement import LIMIT_WALLS, Confinement, Layout, Promise, limits, variables
from harness.sandbox.launch import Plan
from harness.sandbox.process import REAP_SECONDS, Confined, Exit, readable
from harness.sandbox.syscalls import AUDIT_ARCH

START_SECONDS = 20.0

WALLS = ("files", "user", "seccomp", "environment", *LIMIT_WALLS)
"""What the recipe is made of; tests of the canary leave one out at a time."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ABOUT_THE_MACHINE = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")

LEAST_ABI_AS_ROOT = 3
"""Truncating is guarded from this version on (Linux 6.2); a user of its own keeps signals and /proc apart."""

LEAST_ABI = 6
"""Without a user of its own, signals must be scoped: Linux 6.12."""

SHARED_MEMORY = Path("/dev/shm")
DEEPEST_PATH = 3000
"""Characters; the kernel takes 4096 at most."""

FREE_USERS = (0x70000000, 0x0FFFFFFF)
"""First and number of the user ids that systemd's table (UIDS-GIDS.md) leaves unused, where all are mapped."""

FEW_FREE_USERS = (60578, 606)
"""The same within the 16 bits that a container may be limited to."""


@dataclass(frozen=True)
class Launched:
    """Spawns candidates through the launcher."""

    name: Literal["landlock", "none"]
    without: frozenset[str] = frozenset()

    def promise(self) -> Promise:
        """Namespaces are shared with the host; what may be opened, sent and called is not."""
        readable_paths = [str(path) for path in interpreter.paths()]
        held = [] if self._user() is None else _searching(readable_paths)
        return Promise(
            namespaces=(),
            capabilities=sum(1 << capability for capability in held),
            scratch_is_bounded=False,
            variables=tuple(self._variables(Layout("", "", ""))),
        )

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined:
        """Start `argv` confined; returns once it runs. MachineError when the border cannot be raised.

        Call from a thread that lives as long as the candidate: the kernel ends it with the thread that made it.
        """
        uid = self._user()
        try:
            folder = Folder.make(_roomy(confinement.scratch_bytes), confinement, uid)
        except OSError as error:
            raise SandboxError(f"no scratch folder for the candidate: {error}; make room there") from error
        try:
            return self._launch(self._plan(argv, confinement, folder.layout, uid), confinement, folder)
        except OSError as error:
            folder.remove()
            raise SandboxError(f"the candidate's launcher could not be started: {error}") from error
        except BaseException:
            folder.remove()
            raise

    def _launch(self, plan: Plan, confinement: Confinement, folder: Folder) -> Confined:
        status, their_status = os.pipe()
        try:
            process = Popen(
                [sys.executable, "-S", "-m", "harness.sandbox.launch", str(their_status), plan.to_json()],
                env={"PYTHONPATH": folder.layout.lab, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=(their_status, *confinement.descriptors),
                stdin=DEVNULL,
                stdout=DEVNULL if confinement.output is None else confinement.output,
                stderr=DEVNULL if confinement.output is None else confinement.output,
                cwd=folder.layout.scratch,
                start_new_session=True,
            )
        finally:
            os.close(their_status)
        try:
            _await_start(status)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            os.close(status)
        return Leader(process, folder)

    def _plan(self, argv: Sequence[str], confinement: Confinement, layout: Layout, uid: int | None) -> Plan:
        unset = {LIMIT_WALLS.get(wall) for wall in self.without}
        if uid is None:
            unset.add(resource.RLIMIT_NPROC)  # it would count everything else this user runs
        readable_paths = [str(path) for path in self._readable(confinement, layout)]
        environment = {**confinement.environment, **self._variables(layout)}
        return Plan(
            limits=[(number, value) for number, value in limits(confinement).items() if number not in unset],
            uid=uid,
            capabilities=[] if uid is None else _searching(readable_paths),
            parent=os.getpid(),
            read=readable_paths,
            write=[layout.scratch, *DEVICES],
            landlock=0 if self.name == "none" or "files" in self.without else landlock.abi(),
            seccomp=self._filters(),
            environment={**os.environ, **environment} if "environment" in self.without else environment,
            argv=list(argv),
        )

    def _variables(self, layout: Layout) -> dict[str, str]:
        """Without namespaces there is no /dev/shm to give, which numba would complain about at each import."""
        return {**variables(layout), "PYTHONWARNINGS": "ignore:Could not obtain multiprocessing lock"}

    def _filters(self) -> bool:
        """A trusted workspace does without seccomp on a machine no filter is written for."""
        return "seccomp" not in self.without and (self.name != "none" or platform.machine() in AUDIT_ARCH)

    def _readable(self, confinement: Confinement, layout: Layout) -> Iterator[Path]:
        yield from interpreter.paths()
        yield from map(Path, ABOUT_THE_MACHINE)
        yield from (interpreter.package(), Path(layout.lab), confinement.workspace.resolve())

    def _user(self) -> int | None:
        """A user number of the candidate's own; None where we may not give it one."""
        if self.name == "none" or os.geteuid() != 0 or "user" in self.without:
            return None
        first, count = FREE_USERS if _is_mapped(sum(FREE_USERS)) else FEW_FREE_USERS
        return first + secrets.randbelow(count)


@dataclass(frozen=True)
class Folder:
    """A private temporary folder: the scratch, and links to the lab's package and the workspace.

    A lock held by the judge tells later judges that it is in use; what a killed judge left behind they sweep.
    """

    path: Path
    lock: int

    PREFIX = "hillclimb-sandbox-"

    @property
    def layout(self) -> Layout:
        """The paths the candidate uses."""
        return Layout(*(str(self.path / name) for name in ("workspace", "scratch", "lab")))

    @classmethod
    def make(cls, place: Path, confinement: Confinement, uid: int | None) -> Folder:
        """Create one in `place`."""
        path = Path(tempfile.mkdtemp(prefix=cls.PREFIX, dir=place))
        lock = os.open(path / "in-use", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = cls(path, lock)
        (path / "lab").mkdir()
        (path / "lab" / "harness").symlink_to(interpreter.package())
        (path / "workspace").symlink_to(confinement.workspace.resolve())
        (path / "scratch").mkdir(mode=0o700)
        if uid is not None:
            os.chown(path / "scratch", uid, uid)
            path.chmod(0o711)
        return folder

    def used(self) -> int:
        """Bytes in the scratch folder; as good as infinite where it is nested too deep to look."""
        total, folders = 0, [str(self.path / "scratch")]
        while folders:
            folder = folders.pop()
            if len(folder) > DEEPEST_PATH:
                return sys.maxsize
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        return total

    def remove(self) -> None:
        """Delete everything, for once and all."""
        flatten(self.path / "scratch")
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)

    @classmethod
    def sweep(cls, place: Path) -> None:
        """Remove what killed judges of this user have left in `place`; others' folders are not ours to open."""
        for path in place.glob(f"{cls.PREFIX}*"):
            with suppress(OSError):
                found = path.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                    continue
                lock = os.open(path / "in-use", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                else:
                    cls(path, lock).remove()


class Leader(Confined):
    """A candidate that leads a session of its own."""

    def __init__(self, process: Popen[bytes], folder: Folder) -> None:
        super().__init__(process, process.pid, folder.layout)
        self._folder = folder

    def scratch_used(self) -> int:
        """Bytes in its scratch folder; 0 once it is gone."""
        return 0 if self._exit else self._folder.used()

    def _finished(self) -> bool:
        """Look without reaping: the number must stay ours until its group is ended."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _outcome(self) -> Exit:
        self._end()
        code = self._process.wait()
        deadline = time.monotonic() + REAP_SECONDS
        while _group_exists(self.pid):
            if time.monotonic() > deadline:
                raise MachineError(
                    f"processes of {self.pid}'s session outlived SIGKILL by {REAP_SECONDS:g} s"
                )
            time.sleep(0.001)
        return Exit(None, -code) if code < 0 else Exit(code, None)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _release(self) -> None:
        super()._release()
        self._folder.remove()


def landlock_rung(without: frozenset[str] = frozenset()) -> Launched:
    """Offer the rung where this kernel and user can have it; SandboxError says what is missing."""
    abi = landlock.abi()
    least = LEAST_ABI_AS_ROOT if os.geteuid() == 0 else LEAST_ABI
    if abi < least:
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        raise SandboxError(f"Landlock version {abi} found, {least} needed as {user}; use a newer kernel")
    _sweep()
    return Launched("landlock", without)


def trusted_rung() -> Launched:
    """No border against files: clean environment, limits, seccomp. For the user's own code only."""
    _sweep()
    return Launched("none")


def flatten(top: Path) -> None:
    """Empty a folder that may be sealed, or nested deeper than a path can name: lift every level to the top.

    What cannot be deleted is left for the next judge's sweep.
    """
    lifted = itertools.count()
    with suppress(OSError):
        while folders := [path for path in top.iterdir() if path.is_dir() and not path.is_symlink()]:
            for folder in folders:
                folder.chmod(0o700)
                for child in folder.iterdir():
                    if child.is_dir() and not child.is_symlink():
                        child.chmod(0o700)  # moving a folder takes the right to write in it
                    child.rename(top / f"lifted {next(lifted)} {secrets.token_hex(8)}")
                folder.rmdir()


def _await_start(status: int) -> None:
    """Wait until the launcher has become the candidate; SandboxError when it cannot."""
    heard = readable(status, START_SECONDS)
    complaint = os.read(status, 4096).decode(errors="replace") if heard else f"silent for {START_SECONDS:g} s"
    if complaint:
        raise SandboxError(f"the launcher could not confine the candidate: {complaint}")


def _searching(paths: Sequence[str]) -> list[int]:
    """Capabilities a foreign user needs to reach these paths: none, or one that opens folders like a 0700 /root.

    Landlock still decides what may be opened, and seccomp keeps attributes from being changed.
    """
    if all(_is_open(Path(path)) for path in paths):
        return []
    held = privileges.effective()
    for capability in (privileges.CAP_DAC_READ_SEARCH, privileges.CAP_DAC_OVERRIDE):
        if held >> capability & 1:
            return [capability]
    closed = next(path for path in paths if not _is_open(Path(path)))
    raise SandboxError(
        f"{closed} cannot be reached by an unprivileged user; install the lab where others may read"
    )


def _is_open(path: Path) -> bool:
    """Whether anybody may reach and read it; a missing path hinders nobody."""
    real = path.resolve()
    if not real.exists():
        return True
    wanted = 0o5 if real.is_dir() else 0o4
    return real.stat().st_mode & wanted == wanted and all(p.stat().st_mode & 0o1 for p in real.parents)


def _is_mapped(uid: int) -> bool:
    """Whether this user number exists in our user namespace."""
    rows = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= uid < first + count for first, _, count in rows)


def _roomy(size: int) -> Path:
    """A folder in memory where `size` fits twice over, else the usual place for temporary files."""
    if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(SHARED_MEMORY).free > 2 * size:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _sweep() -> None:
    for place in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        Folder.sweep(place)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
