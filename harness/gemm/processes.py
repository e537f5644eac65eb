"""Processes of other programs: a compiler, a profiler."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
POLL_SECONDS = 0.02

WATCHER = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    groups ^= {int(line)}
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
"""Reads each group when it starts and when it ends; kills what is left when nobody can write any more."""


def dying_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the process gets SIGKILL when the thread that started it ends."""
    parent = os.getpid()

    def prepare() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise OSError("its parent died first")

    return prepare


class ProcessGroups:
    """Programs that start others, each with a group of its own. No group outlives this process, whatever ends it."""

    def __enter__(self) -> Self:
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCHER],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.communicate()

    def start(self, command: Sequence[str], **options: Any) -> ProcessGroup:
        """`options` are those of `subprocess.Popen`."""
        process = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 - one call of libc; this process has one thread
            **options,
        )
        self._tell(process.pid)
        return ProcessGroup(process, lambda: self._tell(process.pid))

    def run(self, command: Sequence[str], seconds: float, **options: Any) -> tuple[int, str]:
        """Exit status, and what it wrote. Raises TimeoutError."""
        until = time.monotonic() + seconds
        with tempfile.TemporaryFile() as written:
            group = self.start(
                command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT, **options
            )
            try:
                while not group.has_ended():
                    if time.monotonic() > until:
                        raise TimeoutError
                    time.sleep(POLL_SECONDS)
            finally:
                group.end()
            written.seek(0)
            return group.process.returncode, written.read().decode(errors="replace")

    def _tell(self, group: int) -> None:
        assert self._watcher.stdin is not None
        with suppress(BrokenPipeError):
            self._watcher.stdin.write(b"%d\n" % group)


class ProcessGroup:
    """One program, and all that it started."""

    def __init__(self, process: subprocess.Popen[bytes], ended: Callable[[], None]) -> None:
        self.process, self._ended = process, ended

    def has_ended(self) -> bool:
        """Whether the program has. What it left behind is then ended too."""
        if self.process.returncode is None and _is_waiting(self.process.pid):
            self.end()
        return self.process.returncode is not None

    def end(self) -> None:
        """All of it, if it is not yet."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # not reaped, so the number is still its own
            self.process.wait()
        ended, self._ended = self._ended, lambda: None
        ended()


def _is_waiting(pid: int) -> bool:
    """Whether it ended, and is still to be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # where this process was started to ignore SIGCHLD
        return True
