"""Judges as the controller holds them: local processes behind the interface of hillclimb.harness.judge.protocol."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from hillclimb.harness import errors
from hillclimb.harness.errors import CaseError, HillclimbError, JudgeError, UnreapedError
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.os_errors import translated_os_errors
from hillclimb.harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    LaneReport,
    OracleReport,
    Profile,
    Progress,
    Provenance,
    Record,
    Screening,
    Side,
    Watch,
)

CLOSE_SECONDS = 15
"""For a judge to end: longer than it waits for a candidate's process to be gone."""

LEAVE_SECONDS = 3.0
"""The same for one that was hung up on in the middle of a question."""

SILENCE_SECONDS = 3600.0
"""Without a word from a judge, progress included, it hangs: no step of its takes so long, and the first call on each
problem is one."""

AnswerRecord = TypeVar("AnswerRecord", bound=Record)


class LocalJudge:
    """A judge in a process of its own on this machine; ends with this object, or with this process.

    Raises from the constructor: CaseError, SandboxError and the like when the judge cannot serve the case,
    StorageError when the log's disk refuses, JudgeError when no process can be started.
    """

    def __init__(self, case_folder: Path, log_file: Path, *, trust_workspace: bool = False) -> None:
        self._log_file = log_file
        options = ["--trust-workspace"] if trust_workspace else []
        with translated_os_errors("the judge could not be started"), contextlib.ExitStack() as on_failure:
            self._end, theirs = socket.socketpair()
            on_failure.callback(self._end.close)
            with theirs:
                self._process = _start([str(theirs.fileno()), str(case_folder), *options], theirs, log_file)
            on_failure.pop_all()
        self._end.settimeout(SILENCE_SECONDS)
        self._lines = self._end.makefile("rb")
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(self.close)
            self._await_answer(_ignore)
            unless_ready.pop_all()

    def describe(self) -> Provenance:
        return self._ask(Provenance, "describe", _ignore)

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        return self._ask(EmptyAnswer, "prepare", _ignore, side=side, parent=parent)

    def gate(self, side: Side, watch: Watch) -> GateReport:
        return self._ask(GateReport, "gate", watch, side=side)

    def check_oracle(self, watch: Watch) -> OracleReport:
        return self._ask(OracleReport, "check_oracle", watch)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        return self._ask(Screening, "screen", watch, candidate=candidate, incumbent=incumbent)

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        sides = {"candidate": candidate, "incumbent": incumbent, "baseline": baseline}
        return self._ask(Confirmation, "confirm", watch, **sides, alpha=alpha)

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        return self._ask(Comparison, "compare", watch, first=first, last=last, stage=stage, suite=suite)

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        return self._ask(Profile, "profile", watch, side=side, suite=suite)

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        return self._ask(LaneReport, "lanes", watch, side=side, problems=list(problems))

    def close(self) -> None:
        """Hang up and wait for the end; a judge that will not go is killed, its candidates with it.

        Raises UnreapedError where even that does not end it.
        """
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._end.close()
        try:
            self._process.wait(LEAVE_SECONDS if self._is_asked else CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            try:
                self._process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                raise UnreapedError(f"the judge hangs in the kernel as process {self._process.pid}") from None

    def _ask(
        self, kind: type[AnswerRecord], op: str, watch: Watch, **arguments: Side | float | str | list[str]
    ) -> AnswerRecord:
        body = {name: a.model_dump() if isinstance(a, Record) else a for name, a in arguments.items()}
        try:
            self._end.sendall(json.dumps({"op": op, "arguments": body}).encode() + b"\n")
        except OSError as error:
            raise self._death() from error
        return kind.model_validate(self._await_answer(watch))

    def _await_answer(self, watch: Watch) -> Any:
        self._is_asked = True
        while "progress" in (message := self._read()):
            watch(Progress(**message["progress"]))
        self._is_asked = False
        if "error" in message:
            raise _rebuild(message["error"])
        return message["answer"]

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            hung = f"the judge has said nothing for {SILENCE_SECONDS:.0f} s, so it hangs"
            raise JudgeError(f"{hung}; the end of {self._log_file}: {_tail(self._log_file)}") from None
        except OSError as error:
            raise self._death() from error
        if not line.endswith(b"\n"):
            raise self._death()
        message: dict[str, Any] = json.loads(line)
        return message

    def _death(self) -> JudgeError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        status = self._process.poll()
        if status is None:
            return JudgeError(f"the judge hung up and lives on as process {self._process.pid}; end it")
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return JudgeError(f"the judge died ({how}); the end of {self._log_file}: {_tail(self._log_file)}")


def _start(arguments: list[str], theirs: socket.socket, log_file: Path) -> subprocess.Popen[bytes]:
    """The judge's process; -P, so that no file in the folder a user calls from is taken for a module."""
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hillclimb.harness.judge", *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=keyless_environment(),
        )


def keyless_environment() -> dict[str, str]:
    """This process's, without any variable that may hold a key; whoever judges or is judged needs none."""
    words = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "WEBHOOK")
    return {k: value for k, value in os.environ.items() if not any(word in k.upper() for word in words)}


def _tail(log_file: Path) -> str:
    try:
        return log_file.read_text(errors="replace")[-1500:].strip() or "(empty)"
    except OSError as error:
        return f"(unreadable: {error.strerror})"


def _rebuild(error: dict[str, Any]) -> HillclimbError:
    if error["kind"] == "CaseError":
        return CaseError(*error["arguments"])
    rebuilt: HillclimbError = getattr(errors, error["kind"])(*error["arguments"])
    return rebuilt


def _ignore(progress: Progress) -> None:
    """Nobody watches."""
