"""A provider's process as the bench sees it: asked one thing after another, started again where a kernel ended it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.bench.messages import WorkerAction, WorkerAnswer, WorkerAsk
from hillclimb.harness.gemm.processes import dying_with_parent
from hillclimb.harness.gemm.results import Product

START_SECONDS, PREPARE_SECONDS = 300.0, 300.0
LOG_TAIL = 600
HANGS = 2
"""After which a kernel is not tried again."""


class ProviderProcess:
    """One provider. Whatever a kernel does to its process costs that kernel only."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, seconds: float
    ) -> None:
        """`seconds` are those of one answer about one kernel, after which it counts as hanging.

        Raises UsageError for arguments that it does not take, MachineError where it does not start.
        """
        self.name, self._command, self._environment = name, command, environment
        self._log, self._seconds = log, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._product: WorkerAsk | None = None
        self._refinements: list[WorkerAsk] = []
        self._rest = b""
        self._hangs = Counter[str]()
        self.software = self._start()

    def prepare(self, product: Product, operand_sets: int) -> WorkerAnswer:
        """Its kernels of a shape, or why it has none."""
        self._product = WorkerAsk(action="prepare", product=product, operand_sets=operand_sets)
        self._refinements.clear()
        return self._prepare()

    def refine(self, best: Sequence[str]) -> WorkerAnswer:
        """Further kernels, near those that were best."""
        answer = self.ask("refine", best=best)
        if not answer.fault:
            self._refinements.append(WorkerAsk(action="refine", best=tuple(best)))
        return answer

    def ask(
        self, action: WorkerAction, kernel: str = "", calls: int = 0, best: Sequence[str] = ()
    ) -> WorkerAnswer:
        """About one of them. A process that is gone is started and prepared first."""
        if self._hangs[kernel] == HANGS:
            why = f"it did not end for {HANGS} shapes, and is not tried again"
            return WorkerAnswer(fault="timed_out", detail=why)
        if self._process is None:
            self._restart()
            if (answer := self._prepare()).fault:
                self.close()  # so that the next kernel's turn prepares the shape again
                return answer
        ask = WorkerAsk(action=action, kernel=kernel, calls=calls, best=tuple(best))
        answer = self._ask(ask, self._seconds)
        if kernel and answer.fault == "timed_out":
            self._hangs[kernel] += 1
        return answer

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                process.communicate()

    def _start(self) -> dict[str, str]:
        self._rest = b""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=dying_with_parent(),  # noqa: PLW1509 - one call of libc; this process has one thread
            )
        answer = self._ask(WorkerAsk(action="start"), START_SECONDS)
        if answer.fault == "unsupported" and answer.is_broken:
            raise UsageError(answer.detail)
        if answer.fault:
            raise MachineError(
                f"the process of {self.name} does not start: {answer.detail}; read {self._log}"
            )
        return answer.software or {}

    def _restart(self) -> None:
        software = self._start()
        if software != self.software:
            raise MachineError(
                f"the process of {self.name} has other software than before: {software} and not {self.software}; "
                "its times would be of both"
            )

    def _prepare(self) -> WorkerAnswer:
        if self._process is None:
            self._restart()
        assert self._product is not None
        answer = self._ask(self._product, PREPARE_SECONDS)
        for refinement in self._refinements if not answer.fault else ():
            self._ask(refinement, PREPARE_SECONDS)
        return answer

    def _ask(self, ask: WorkerAsk, seconds: float) -> WorkerAnswer:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(ask.model_dump_json().encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, seconds)
            if line is None:
                return self._ended("timed_out", f"no answer in {seconds:g} s")
            answer = WorkerAnswer.model_validate_json(line)
        except (BrokenPipeError, EOFError):
            return self._ended("aborted", "its process ended")
        except ValidationError:
            return self._ended("aborted", f"its process answered {line!r:.200}")
        if answer.is_broken:
            self.close()
        return answer

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """None where there is none in time. Raises EOFError where there will be none."""
        assert process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, status: str, why: str) -> WorkerAnswer:
        process = self._process
        self.close()
        code = process.returncode if process else 0
        told = self._log.read_bytes()[-LOG_TAIL:].decode(errors="replace").strip()
        detail = f"{why} (status {code}); the end of its log: {told!r}"
        return WorkerAnswer.model_validate({"fault": status, "detail": detail, "is_broken": True})
