"""Sends a canary down before any candidate: a rung from which it gets out is not used.

The program inside reports what it achieved; the judge believes only its bad news, and looks for itself at the
files, sockets and folders that should have stayed untouched.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Protocol

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.canary import escapes
from hillclimb.harness.sandbox.canary.attempts.bait import SECRET, Bait
from hillclimb.harness.sandbox.confinement import Confinement, RungGuarantees
from hillclimb.harness.sandbox.process import SandboxedProcess, is_readable

MEMORY_BYTES = 4 << 30
"""More than torch and triton hold in a fork."""

SCRATCH_BYTES = 4 << 20
MAX_OUTPUT_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0
"""It needs 0.1 s; a machine that needs this long is at fault."""

EXIT_TIMEOUT_SECONDS = 0.5
"""Whatever the canary leaves behind lives four times as long; the ended are gone when they have been collected."""

SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock")
HIDDEN_REPOSITORY_PARTS = ("agent", "cases", "runs", "tests", ".git", "pyproject.toml")
REPOSITORY = ("hooks", "info", "refs/heads")
"""Folders of a git repository."""

KERNELS = ("kernel.cubin", "replaced.cubin", "removed.cubin")
OWN_VARIABLES = ("PWD", "LC_CTYPE")
"""Set by bubblewrap and by Python itself."""


class Testable(Protocol):
    """A rung as the canary needs it."""

    @property
    def name(self) -> str: ...
    def guarantees(self) -> RungGuarantees: ...
    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess: ...


def escapes_from(rung: Testable, devices: tuple[str, ...] = (), *, serves: bool = False) -> list[str]:
    """Try every escape inside `rung`, with the device nodes that candidates get, or as a server that `serves`.

    The names of those that got out.

    SandboxError when the canary itself cannot run there: no news is not good news.
    """
    with place_bait(rung.guarantees()) as lure:
        reported, has_outlived = _report(rung, lure, devices, serves=serves)
        outlived = ["the judge saw a process outlive the run"] if has_outlived else []
        return [name for name, out in reported.items() if out] + lure.violations() + outlived


@dataclass(frozen=True)
class PlacedBait:
    """The judge's side of the bait."""

    bait: Bait
    folder: Path
    listeners: tuple[socket.socket, ...]
    untouched: os.stat_result
    decoy: Popen[bytes]

    def violations(self) -> list[str]:
        """What the judge itself sees to have been reached."""
        found = [f"the judge saw {path} appear" for path in self._appeared()]
        victim = (self.folder / "victim").stat()
        if (victim.st_mtime_ns, victim.st_mode, victim.st_size) != _looks(self.untouched):
            found.append("the judge saw its file change")
        found += [
            "the judge was contacted over a socket" for end in self.listeners if is_readable(end.fileno(), 0)
        ]
        if _contents(self.folder / "kernels/KEY") != dict.fromkeys(KERNELS, SECRET):
            found.append("the judge saw compiled kernels change")
        if _contents(self.folder / "repository") != {".git/config": SECRET}:
            found.append("the judge saw a git repository change")
        if self.decoy.poll() is not None:
            found.append("the judge saw a process of its own end")
        return found

    def _appeared(self) -> Iterator[Path]:
        yield from (self.folder / "drop").iterdir()
        yield from (self.folder / "workspace").iterdir()
        yield from (Path(mark) for mark in self.bait.marks if Path(mark).exists())


@contextmanager
def place_bait(promise: RungGuarantees) -> Iterator[PlacedBait]:
    """Make a folder with a secret, listeners, a descriptor and a piece of memory; remove them afterwards."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="hillclimb-canary-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _furnish(folder)
        listeners = tuple(stack.enter_context(closing(end)) for end in _listen(folder))
        secret = stack.enter_context((folder / "secret").open())
        os.set_inheritable(secret.fileno(), True)
        memory = ctypes.create_string_buffer(SECRET.encode())
        decoy = stack.enter_context(_decoy())
        bait = _bait(promise, folder, listeners, secret.fileno(), ctypes.addressof(memory), decoy.pid)
        stack.callback(_remove, bait.marks)
        yield PlacedBait(bait, folder, listeners, (folder / "victim").stat(), decoy)


def _furnish(folder: Path) -> None:
    """Files and folders that anybody could change, were it not for the border; and one that only its owner may read."""
    repository = folder / "repository/.git"
    drops = [folder / "drop", folder / "workspace", folder / "kernels/KEY", repository]
    for path in (*drops, *(repository / name for name in REPOSITORY)):
        path.mkdir(parents=True)
        path.chmod(0o777)
    folder.chmod(0o755)
    kernels = (folder / "kernels/KEY" / name for name in KERNELS)
    for path in (folder / "secret", folder / "victim", repository / "config", *kernels):
        path.write_text(SECRET)
        path.chmod(0o666)
    (folder / ".env").write_text(SECRET)
    (folder / ".env").chmod(0o600)


@contextmanager
def _decoy() -> Iterator[Popen[bytes]]:
    """A process of the judge's own, which ends with it at the latest."""
    waits = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with Popen(waits, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _bait(
    promise: RungGuarantees,
    folder: Path,
    listeners: Sequence[socket.socket],
    descriptor: int,
    address: int,
    decoy: int,
) -> Bait:
    mark = f"hillclimb-mark-{secrets.token_hex(8)}"
    lab = interpreter.harness_folder().parent
    hidden = (
        ()
        if any(lab.is_relative_to(path) for path in interpreter.readable_paths())
        else HIDDEN_REPOSITORY_PARTS
    )
    tcp, abstract, _ = listeners
    return Bait(
        judge=_number(promise, os.getpid()),
        session=os.getsid(0),
        descriptor=descriptor,
        address=address,
        folder=str(folder),
        marks=[f"{place}/{mark}" for place in SHARED_FOLDERS],
        hidden=[str(lab / part) for part in hidden],
        workspace=str(folder / "workspace"),
        kernels=str(folder / "kernels"),
        decoy=_number(promise, decoy),
        port=tcp.getsockname()[1],
        abstract=abstract.getsockname()[1:].decode(),
        host=os.uname().nodename,
        namespaces={name: link for name in promise.namespaces if (link := _namespace(name))},
        variables=[*promise.variables, *OWN_VARIABLES],
        descriptors=[],
        capabilities=promise.capabilities,
        memory_bytes=MEMORY_BYTES,
        scratch_bytes=SCRATCH_BYTES,
        scratch_is_bounded=promise.scratch_is_bounded,
    )


def _number(promise: RungGuarantees, pid: int) -> int:
    """A pid; an impossible one where it is so small that inside it would name one of the candidate's own."""
    return 1 << 22 if "pid" in promise.namespaces and pid < 100 else pid


def _listen(folder: Path) -> Iterator[socket.socket]:
    """TCP on the loopback, an abstract socket, a socket file."""
    addresses: tuple[tuple[int, str | tuple[str, int]], ...] = (
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_UNIX, f"\0hillclimb-{secrets.token_hex(8)}"),
        (socket.AF_UNIX, str(folder / "socket")),
    )
    for family, address in addresses:
        end = socket.socket(family)
        end.bind(address)
        end.listen(8)
        yield end
    (folder / "socket").chmod(0o777)


def _report(
    rung: Testable, lure: PlacedBait, devices: tuple[str, ...], *, serves: bool
) -> tuple[dict[str, bool], bool]:
    """Run the program; what it achieved, and whether anything of it lives on. SandboxError for less than every attempt.

    Whoever lives on holds its output open.
    """
    output, theirs = os.pipe()
    try:
        try:
            confinement = Confinement(
                lure.folder / "workspace",
                MEMORY_BYTES,
                SCRATCH_BYTES,
                output=theirs,
                devices=devices,
                readable=(lure.folder / "kernels",),
                serves=serves,
            )
            argv = [sys.executable, "-m", "hillclimb.harness.sandbox.canary.escapes", lure.bait.to_json()]
            try:
                confined = rung.spawn(argv, confinement)
            except SandboxError as error:
                raise SandboxError(f"{error}{_said(output)}") from error
            try:
                ending = confined.wait(TIMEOUT_SECONDS)
            finally:
                confined.kill()
        finally:
            os.close(theirs)
        said, is_over = _drain(output)
    finally:
        os.close(output)
    context = f"canary in {rung.name}: {ending or f'still running after {TIMEOUT_SECONDS:g} s'}"
    return _parse(said, context), not is_over


def _drain(output: int) -> tuple[bytes, bool]:
    """What can be read of a pipe, and whether nobody holds its other end any more."""
    said, deadline = b"", time.monotonic() + EXIT_TIMEOUT_SECONDS
    while len(said) < MAX_OUTPUT_BYTES and is_readable(output, deadline - time.monotonic()):
        piece = os.read(output, 65536)
        if not piece:
            return said, True
        said += piece
    return said, False


def _parse(said: bytes, context: str) -> dict[str, bool]:
    lines = [line for line in said.splitlines() if line.startswith(b"{")]
    try:
        reported = json.loads(lines[-1])  # a zygote's libraries may have their say as the interpreter ends
    except (ValueError, IndexError):
        raise SandboxError(f"{context}; it said {said[-300:].decode(errors='replace')!r}") from None
    missing = {escapes.title(attempt) for attempt in escapes.ATTEMPTS} - set(reported)
    if missing:
        raise SandboxError(f"{context}; it did not try: {', '.join(sorted(missing))}")
    return {str(name): out is not False for name, out in reported.items()}


def _said(output: int) -> str:
    said = os.read(output, 4096).decode(errors="replace").strip() if is_readable(output, 0) else ""
    return f": {said}" if said else ""


def _namespace(name: str) -> str | None:
    with suppress(OSError):
        return str(Path("/proc/self/ns", name).readlink())
    return None


def _contents(folder: Path) -> dict[str, str]:
    """Every plain file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_text(errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    }


def _looks(of: os.stat_result) -> tuple[int, int, int]:
    return of.st_mtime_ns, of.st_mode, of.st_size


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(OSError):
            Path(path).unlink()
