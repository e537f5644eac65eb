"""Keeps a judge alive: questions go through here, and a judge that dies is replaced and asked again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agent.interrupts import Interrupts
from harness.errors import (
    CandidateFault,
    JudgeError,
    MachineError,
    SandboxError,
    StorageError,
    UsageError,
)
from harness.judge.protocol import Judge
from harness.records import Side

T = TypeVar("T")

RESTARTS = 3
"""Fresh judges tried for one question before the climb gives up."""


class Supervised:
    """One judge at a time, started when first asked. A judge whose answer did not arrive whole is never reused."""

    def __init__(
        self, make: Callable[[Path, Path], Judge], notice: Callable[[str], None], interrupts: Interrupts
    ) -> None:
        self._make, self._notice, self._interrupts = make, notice, interrupts
        self._judge: Judge | None = None
        self._hinted: set[str] = set()
        """Sides that this judge was told of."""
        self._over = (Path(), Path())

    def take_up(self, case_folder: Path, log: Path) -> None:
        """Judge this case from now on; a judge already at it goes on."""
        if self._over != (case_folder, log):
            self.close()
            self._over = (case_folder, log)

    def ask(self, question: Callable[[Judge], T]) -> T:
        """The answer. Raises JudgeError when fresh judges keep dying over the same question."""
        for restarts in range(RESTARTS + 1):
            try:
                return self._ask_once(question)
            except (StorageError, SandboxError):
                raise
            except MachineError as error:
                if restarts == RESTARTS:
                    raise JudgeError(
                        f"the judge failed {restarts + 1} times in a row over one question, last with: {error}; "
                        "nothing is held against the candidate, and the same command goes on with it"
                    ) from error
                self._notice(f"the judge failed ({error}); starting another")
        raise AssertionError("unreachable")

    def hint(self, side: Side, parent: Side) -> None:
        """Tell the judge, if there is one, of a side that it will be asked about; each side once.

        A hint that fails is forgotten; a judge that it killed is replaced when there is a question.
        """
        name = side.model_dump_json()
        if self._judge is None or name in self._hinted:
            return
        self._hinted.add(name)
        try:
            with self._interrupts.window():
                self._judge.prepare(side, parent)
        except JudgeError as error:
            self._notice(f"the judge failed ({error}) while it was told what comes next; starting another")
            self.close()
        except (MachineError, CandidateFault, UsageError):
            return
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the judge, if there is one."""
        judge, self._judge = self._judge, None
        self._hinted = set()
        if judge is not None:
            with contextlib.suppress(MachineError):
                judge.close()

    def _ask_once(self, question: Callable[[Judge], T]) -> T:
        try:
            with self._interrupts.window():
                if self._judge is None:
                    self._judge = self._make(*self._over)
                return question(self._judge)
        except BaseException:
            self.close()
            raise
