"""Candidates judged to their end, as a climb would: screened and confirmed; what breaks a judge is told as such.

Used where there is time for it: scripts/experiments/cheat_rates.py, and the tests that need a GPU.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hillclimb.harness.errors import MachineError, StorageError
from hillclimb.harness.judge import pool
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Provenance, Reason, Side
from tests.cheats import cases
from tests.cheats.declared import Candidate, Stage

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """How a candidate's judging ended; no reason: it was kept."""

    reason: Reason | None
    detail: str
    stage: Stage
    """Where it ended."""
    speedup: float | None
    seconds: float


class Court:
    """One judge at a time, since a GPU has room for one; opened for the case and the wall that are asked for."""

    def __init__(self, root: Path) -> None:
        """`root` must be a folder that others may read, its parents included."""
        self._root = root
        self._cases: dict[str, Path] = {}
        self._open: tuple[str, bool] | None = None
        self._judge: LocalJudge | None = None

    def judge(
        self, candidate: Candidate, alpha: float, *, unread: bool = False, until: Stage = "confirm"
    ) -> Answer:
        """Judge one candidate against its case's start, as far as `until`. Raises MachineError as a climb would."""
        case = candidate.declared.case
        side = Side(tree=str(cases.write_workspace(self._root, candidate)))
        started = time.perf_counter()
        try:
            reason, detail, stage, speedup = self._try(case, side, alpha, unread, until)
        except StorageError:
            raise
        except MachineError as error:
            self.close()
            start = Side(tree=str(self._cases[case] / "workspace"))
            if not self._take(case, unread).gate(start, _ignore).passed:
                raise
            reason, detail, stage, speedup = Reason.BROKE_JUDGE, str(error), "confirm", None
        return Answer(reason, detail, stage, speedup, time.perf_counter() - started)

    def describe(self) -> Provenance | None:
        """What judges now."""
        return self._judge.describe() if self._judge else None

    def close(self) -> None:
        if self._judge is not None:
            self._judge.close()
        self._judge, self._open = None, None

    def _try(
        self, case: str, side: Side, alpha: float, unread: bool, until: Stage
    ) -> tuple[Reason | None, str, Stage, float | None]:
        judge = self._take(case, unread)
        if until == "gate":
            gate = judge.gate(side, _ignore)
            return gate.reason, gate.detail, "gate", None
        start = Side(tree=str(self._cases[case] / "workspace"))
        screening = judge.screen(side, start, _ignore)
        if screening.reason or until == "screen":
            stage: Stage = "screen" if screening.gate.passed else "gate"
            return screening.reason, screening.detail, stage, screening.speedup
        found = judge.confirm(side, start, start, alpha, _ignore)
        return found.reason, found.detail, "confirm", found.speedup.estimate if found.speedup else None

    def _take(self, case: str, unread: bool) -> LocalJudge:
        """The judge of this case, the one before it closed."""
        if self._judge is None or self._open != (case, unread):
            self.close()
            if case not in self._cases:
                self._cases[case] = cases.write(self._root, case)
            with patch.object(pool, "_start", _start_unread if unread else pool._start):
                self._judge = LocalJudge(self._cases[case], self._root / "judge.log")
            self._open = case, unread
        return self._judge


def _start_unread(arguments: list[str], theirs: socket.socket, log_file: Path) -> subprocess.Popen[bytes]:
    """As hillclimb.harness.judge.pool starts a judge, but for what is started."""
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("unread.py")), *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )


def _ignore(progress: Progress) -> None:
    """Nobody watches."""
