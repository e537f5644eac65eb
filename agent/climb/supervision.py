"""Keeps a judge alive: questions go through here, and a judge that dies is replaced and asked again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from hillclimb.agent.climb.request import MakeJudge, Tools
from hillclimb.agent.machine.interrupts import Interrupts
from hillclimb.harness.errors import (
    CandidateFault,
    JudgeError,
    MachineError,
    SandboxError,
    StorageError,
    UsageError,
)
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.records import Provenance, Side

T = TypeVar("T")

RESTART_DELAYS_SECONDS = (1.0, 3.0, 9.0)
"""Seconds before each fresh judge that is tried for one question; after the last the climb gives up."""


class JudgeSupervisor:
    """One judge at a time, started when first asked. A judge whose answer did not arrive whole is never reused."""

    def __init__(
        self,
        make: MakeJudge,
        tools: Tools,
        interrupts: Interrupts,
    ) -> None:
        self._make, self._interrupts = make, interrupts
        self._notice, self._sleep = tools.notice, tools.clock.sleep
        self._judge: Judge | None = None
        self._described: Provenance | None = None
        """Of the judge at work."""
        self.answered_by: Provenance | None = None
        """Of the judge that gave the last answer, which may be dead by now."""
        self._has_started = False
        """Whether a judge was ever up: where none was, a border that fails is the machine's way, and no hiccup."""
        self._hinted: set[str] = set()
        """Sides that this judge was told of."""
        self._case_and_log = (Path(), Path())

    def take_up(self, case_folder: Path, log: Path) -> None:
        """Judge this case from now on; a judge already at it goes on."""
        if self._case_and_log != (case_folder, log):
            self.close()
            self._case_and_log = (case_folder, log)

    def ask(self, question: Callable[[Judge], T]) -> T:
        """The answer. Raises JudgeError when fresh judges keep dying over the same question."""
        for pause in (*RESTART_DELAYS_SECONDS, None):
            try:
                return self._ask_once(question)
            except StorageError:
                raise
            except MachineError as error:
                if isinstance(error, SandboxError) and not self._has_started:
                    raise
                if pause is None:
                    raise JudgeError(
                        f"the judge failed {len(RESTART_DELAYS_SECONDS) + 1} times in a row over one "
                        f"question, last with: {error}; "
                        "nothing is held against the candidate, and the same command goes on with it"
                    ) from error
                self._notice(f"the judge failed ({error}); starting another")
                with self._interrupts.interruptible():
                    self._sleep(pause)
        raise AssertionError("unreachable")

    def hint(self, side: Side, parent: Side) -> None:
        """Tell the judge, if there is one, of a side that it will be asked about; each side once.

        A hint that fails is forgotten; a judge that it killed is replaced when there is a question.
        """
        name = side.model_dump_json()
        if self._judge is None or name in self._hinted:
            return
        self._hinted.add(name)
        with ExitStack() as unless_answered:
            unless_answered.callback(self.close)
            try:
                with self._interrupts.interruptible():
                    self._judge.prepare(side, parent)
            except JudgeError as error:
                self._notice(
                    f"the judge failed ({error}) while it was told what comes next; starting another"
                )
                return
            except (MachineError, CandidateFault, UsageError):
                pass
            unless_answered.pop_all()

    def close(self) -> None:
        """End the judge, if there is one."""
        judge, self._judge = self._judge, None
        self._hinted = set()
        if judge is not None:
            with contextlib.suppress(MachineError):
                judge.close()

    def _ask_once(self, question: Callable[[Judge], T]) -> T:
        with ExitStack() as unless_answered:
            unless_answered.callback(self.close)
            with self._interrupts.interruptible():
                if self._judge is None:
                    self._judge = self._make(*self._case_and_log)
                    self._has_started = True
                    self._described = self._judge.describe()
                answer = question(self._judge)
                self.answered_by = self._described
            unless_answered.pop_all()
        return answer
