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

from hillclimb.harness.os_errors import translated_os_errors

T = TypeVar("T")

_EXIT_TIMEOUT_SECONDS = 10.0


class GitExited(Exception):
    """The command ended before it had answered; `complaint` is what it said on standard error."""

    def __init__(self, complaint: str) -> None:
        super().__init__(complaint)
        self.complaint = complaint


class GitProcess:
    """Started when first asked, and again when it has ended since. May be asked from any thread."""

    def __init__(self, command: Sequence[str], root: Path, environment: Mapping[str, str]) -> None:
        self._command, self._root, self._environment = tuple(command), root, dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._content_fd = self._stderr_fd = -1
        self._lock = threading.Lock()

    def ask(self, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        """What `read` makes of the answer; it raises EOFError where that is cut short.

        Every question is one that may be asked twice: of a process that has been there for a while, what it still
        remembers may be gone from the disk (the user's own git packed it), and a fresh one is asked again. Raises
        GitExited.
        """
        with self._lock:
            return self._ask_twice(lambda: self._exchange(question, read))

    def ask_with_content(self, content: bytes, read: Callable[[IO[bytes]], T]) -> T:
        """The same where the question is the name of a file that holds `content`; it never touches a disk."""
        with self._lock:
            return self._ask_twice(lambda: self._ask_with_file(content, read))

    def close(self) -> None:
        """End it; it is started again when there is another question."""
        with self._lock:
            self._end()

    def _ask_twice(self, ask: Callable[[], T]) -> T:
        if self._is_alive():
            with suppress(GitExited):
                return ask()
        self._start()
        return ask()

    def _ask_with_file(self, content: bytes, read: Callable[[IO[bytes]], T]) -> T:
        os.ftruncate(self._content_fd, 0)
        rest, at = memoryview(content), 0
        while at < len(content):
            at += os.pwrite(self._content_fd, rest[at:], at)
        return self._exchange(f"/proc/self/fd/{self._content_fd}\n".encode(), read)

    def _exchange(self, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with ExitStack() as stack:
            stack.callback(self._end)  # what it would answer next is the answer to this
            try:
                self._process.stdin.write(question)
                self._process.stdin.flush()
                answer = read(self._process.stdout)
            except (EOFError, BrokenPipeError):
                stack.pop_all()
                raise GitExited(self._end()) from None
            stack.pop_all()
        return answer

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        self._end()
        with translated_os_errors("git could not be started"), ExitStack() as on_failure:
            self._content_fd = os.memfd_create("hillclimb-content")
            on_failure.callback(os.close, self._content_fd)
            self._stderr_fd = os.memfd_create("hillclimb-git")
            on_failure.callback(os.close, self._stderr_fd)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr_fd,
                cwd=self._root,
                env={**os.environ, "LANGUAGE": "C", "LC_ALL": "C", "GIT_FLUSH": "1", **self._environment},
                pass_fds=(self._content_fd,),
                process_group=0,
            )
            on_failure.pop_all()

    def _end(self) -> str:
        """End what there is; what it complained about."""
        process, self._process = self._process, None
        if process is None:
            return ""
        try:
            _close_and_wait(process)
            return os.pread(self._stderr_fd, 1 << 16, 0).decode(errors="replace").strip()
        finally:
            os.close(self._content_fd)
            os.close(self._stderr_fd)


def _close_and_wait(process: subprocess.Popen[bytes]) -> None:
    """Its input ends and nobody reads it any more, so it ends; one that does not is killed."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # it has ended by itself, with a question on the way
            pipe.close()
    try:
        process.wait(_EXIT_TIMEOUT_SECONDS)
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
