"""A git command that stays: it reads questions from its standard input, and a question costs no process.

What it wrote is on the disk when it has answered, as if it had ended: git flushes each object before it says its name.
When the controller dies, however that happens, its input ends and it ends too.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TypeVar

from harness.judge.refusal import refusals_told

T = TypeVar("T")

_LEAVE_SECONDS = 10.0


class GitEnded(Exception):
    """The command ended before it had answered; `complaint` is what it said on standard error."""

    def __init__(self, complaint: str) -> None:
        super().__init__(complaint)
        self.complaint = complaint


class GitProcess:
    """Started when first asked, and again when it has ended since. May be asked from any thread."""

    def __init__(self, command: Sequence[str], root: Path, environment: Mapping[str, str]) -> None:
        self._command, self._root, self._environment = tuple(command), root, dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._sheet = self._complaints = -1
        self._lock = threading.Lock()

    def ask(self, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        """What `read` makes of the answer; it raises EOFError where that is cut short.

        Every question is one that may be asked twice: of a process that has been there for a while, what it still
        remembers may be gone from the disk (the user's own git packed it), and a fresh one is asked again. Raises
        GitEnded.
        """
        with self._lock:
            return self._ask_twice(lambda: self._exchange(question, read))

    def ask_about(self, content: bytes, read: Callable[[IO[bytes]], T]) -> T:
        """The same where the question is the name of a file that holds `content`; it never touches a disk."""
        with self._lock:
            return self._ask_twice(lambda: self._hand_over(content, read))

    def close(self) -> None:
        """End it; it is started again when there is another question."""
        with self._lock:
            self._end()

    def _ask_twice(self, ask: Callable[[], T]) -> T:
        if self._is_alive():
            with suppress(GitEnded):
                return ask()
        self._start()
        return ask()

    def _hand_over(self, content: bytes, read: Callable[[IO[bytes]], T]) -> T:
        os.ftruncate(self._sheet, 0)
        rest, at = memoryview(content), 0
        while at < len(content):
            at += os.pwrite(self._sheet, rest[at:], at)
        return self._exchange(f"/proc/self/fd/{self._sheet}\n".encode(), read)

    def _exchange(self, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(question)
            self._process.stdin.flush()
            return read(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise GitEnded(self._end()) from None
        except BaseException:
            self._end()  # what it would answer next is the answer to this
            raise

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        self._end()
        with refusals_told("git could not be started"), ExitStack() as on_failure:
            self._sheet = os.memfd_create("hillclimb-sheet")
            on_failure.callback(os.close, self._sheet)
            self._complaints = os.memfd_create("hillclimb-git")
            on_failure.callback(os.close, self._complaints)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                cwd=self._root,
                env={**os.environ, "LANGUAGE": "C", "LC_ALL": "C", "GIT_FLUSH": "1", **self._environment},
                pass_fds=(self._sheet,),
                process_group=0,
            )
            on_failure.pop_all()

    def _end(self) -> str:
        """End what there is; what it complained about."""
        process, self._process = self._process, None
        if process is None:
            return ""
        try:
            _leave(process)
            return os.pread(self._complaints, 1 << 16, 0).decode(errors="replace").strip()
        finally:
            os.close(self._sheet)
            os.close(self._complaints)


def _leave(process: subprocess.Popen[bytes]) -> None:
    """Its input ends and nobody reads it any more, so it ends; one that does not is killed."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # it has ended by itself, with a question on the way
            pipe.close()
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_line(answer: IO[bytes]) -> str:
    """One line of an answer, without its end. Raises EOFError where there is none."""
    line = answer.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return os.fsdecode(line[:-1])


def read_exactly(answer: IO[bytes], size: int) -> bytes:
    """So many bytes of an answer. Raises EOFError where there are fewer."""
    content = answer.read(size)
    if len(content) < size:
        raise EOFError
    return content
