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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import SandboxError
from harness.sandbox import escapes, interpreter
from harness.sandbox.confinement import Confinement, Promise
from harness.sandbox.escapes import SECRET, Bait
from harness.sandbox.process import Confined, readable

MEMORY_BYTES = 4 << 30
"""More than torch and triton hold in a fork."""

SCRATCH_BYTES = 4 << 20
SECONDS = 30.0
"""It needs 0.1 s; a machine that needs this long is at fault."""

SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock")
PARTS_OF_THE_LAB = ("agent", "cases", "runs", "tests", ".git", "pyproject.toml")
OWN_VARIABLES = ("PWD", "LC_CTYPE")
"""Set by bubblewrap and by Python itself."""


class Testable(Protocol):
    """A rung as the canary needs it."""

    @property
    def name(self) -> str: ...
    def promise(self) -> Promise: ...
    def spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined: ...


def escapes_from(rung: Testable, devices: tuple[str, ...] = ()) -> list[str]:
    """Try every escape inside `rung`, with the device nodes that candidates get; the names of those that got out.

    SandboxError when the canary itself cannot run there: no news is not good news.
    """
    with lay_bait(rung.promise()) as lure:
        reported = _report(rung, lure, devices)
        return [name for name, out in reported.items() if out] + lure.disturbed()


@dataclass(frozen=True)
class Lure:
    """The judge's side of the bait."""

    bait: Bait
    folder: Path
    listeners: tuple[socket.socket, ...]
    untouched: os.stat_result

    def disturbed(self) -> list[str]:
        """What the judge itself sees to have been reached."""
        found = [f"the judge saw {path} appear" for path in self._appeared()]
        victim = (self.folder / "victim").stat()
        if (victim.st_mtime_ns, victim.st_mode, victim.st_size) != _looks(self.untouched):
            found.append("the judge saw its file change")
        found += [
            "the judge was contacted over a socket" for end in self.listeners if readable(end.fileno(), 0)
        ]
        return found

    def _appeared(self) -> Iterator[Path]:
        yield from (self.folder / "drop").iterdir()
        yield from (self.folder / "workspace").iterdir()
        yield from (Path(mark) for mark in self.bait.marks if Path(mark).exists())


@contextmanager
def lay_bait(promise: Promise) -> Iterator[Lure]:
    """Make a folder with a secret, listeners, a descriptor and a piece of memory; remove them afterwards."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="hillclimb-canary-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("drop", "workspace"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        folder.chmod(0o755)
        for name in ("secret", "victim"):
            (folder / name).write_text(SECRET)
            (folder / name).chmod(0o666)
        listeners = tuple(stack.enter_context(closing(end)) for end in _listen(folder))
        secret = stack.enter_context((folder / "secret").open())
        os.set_inheritable(secret.fileno(), True)
        memory = ctypes.create_string_buffer(SECRET.encode())
        bait = _bait(promise, folder, listeners, secret.fileno(), ctypes.addressof(memory))
        stack.callback(_remove, bait.marks)
        yield Lure(bait, folder, listeners, (folder / "victim").stat())


def _bait(
    promise: Promise, folder: Path, listeners: Sequence[socket.socket], descriptor: int, address: int
) -> Bait:
    mark = f"hillclimb-mark-{secrets.token_hex(8)}"
    lab = interpreter.package().parent
    hidden = () if any(lab.is_relative_to(path) for path in interpreter.paths()) else PARTS_OF_THE_LAB
    tcp, abstract, _ = listeners
    return Bait(
        judge=_number(promise),
        session=os.getsid(0),
        descriptor=descriptor,
        address=address,
        folder=str(folder),
        marks=[f"{place}/{mark}" for place in SHARED_FOLDERS],
        hidden=[str(lab / part) for part in hidden],
        workspace=str(folder / "workspace"),
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


def _number(promise: Promise) -> int:
    """The judge's pid; an impossible one where it is so small that inside it would name the candidate's own."""
    return 1 << 22 if "pid" in promise.namespaces and os.getpid() < 100 else os.getpid()


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


def _report(rung: Testable, lure: Lure, devices: tuple[str, ...]) -> dict[str, bool]:
    """Run the program and read what it achieved; SandboxError unless it made every attempt."""
    output, theirs = os.pipe()
    try:
        confinement = Confinement(
            lure.folder / "workspace", MEMORY_BYTES, SCRATCH_BYTES, output=theirs, devices=devices
        )
        argv = [sys.executable, "-m", "harness.sandbox.escapes", lure.bait.to_json()]
        try:
            confined = rung.spawn(argv, confinement)
        except SandboxError as error:
            raise SandboxError(f"{error}{_said(output)}") from error
        try:
            ending = confined.wait(SECONDS)
        finally:
            confined.kill()
        said = os.read(output, 65536) if readable(output, 0) else b""
    finally:
        os.close(output)
        os.close(theirs)
    return _parse(said, f"canary in {rung.name}: {ending or f'still running after {SECONDS:g} s'}")


def _parse(said: bytes, context: str) -> dict[str, bool]:
    try:
        reported = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        raise SandboxError(f"{context}; it said {said[-300:].decode(errors='replace')!r}") from None
    missing = {escapes.title(attempt) for attempt in escapes.ATTEMPTS} - set(reported)
    if missing:
        raise SandboxError(f"{context}; it did not try: {', '.join(sorted(missing))}")
    return {str(name): out is not False for name, out in reported.items()}


def _said(output: int) -> str:
    said = os.read(output, 4096).decode(errors="replace").strip() if readable(output, 0) else ""
    return f": {said}" if said else ""


def _namespace(name: str) -> str | None:
    with suppress(OSError):
        return str(Path("/proc/self/ns", name).readlink())
    return None


def _looks(of: os.stat_result) -> tuple[int, int, int]:
    return of.st_mtime_ns, of.st_mode, of.st_size


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(OSError):
            Path(path).unlink()
