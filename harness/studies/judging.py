"""One case of a study with a judge for all of its kernels, one after another where the machine fails them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import MachineError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.os_errors import translated_os_errors
from hillclimb.harness.studies.study import StudyCase
from hillclimb.harness.studies.variants import StagedCase, stage_case

Answer = TypeVar("Answer")


@dataclass
class RestartingJudge:
    """One judge at a time: a question on which it fails has no answer, and the next one is a fresh judge's."""

    start: Callable[[], Judge]
    _now: Judge | None = None

    def ask(self, question: Callable[[Judge], Answer]) -> Answer:
        """The answer. Raises what the judge raises, and what `start` does where there is none at work."""
        self._now = self._now or self.start()
        try:
            return question(self._now)
        except MachineError:
            self.close()
            raise

    def close(self) -> None:
        judge, self._now = self._now, None
        if judge is not None:
            judge.close()


@contextmanager
def staged_judge(
    case: StudyCase, *, timed: Collection[str] = (), trust_workspace: bool = False
) -> Iterator[tuple[Case, StagedCase, RestartingJudge]]:
    """The case as it was read, its copy with a workspace for each variant, and judges of that copy.

    `timed` names the problems that are to be timed. Raises CaseError for a file that is wrong, and MachineError for
    what the operating system refuses, in the block, too.
    """
    read = Case(case.folder)
    with (
        translated_os_errors(f"{case} could not be measured"),
        tempfile.TemporaryDirectory(prefix="hillclimb-study-") as place,
        stage_case(read, timed=timed) as copy,
    ):
        log = Path(place, "judge.log")
        start = partial(LocalJudge, copy.folder, log, trust_workspace=trust_workspace)
        with closing(RestartingJudge(start)) as judges:
            yield read, copy, judges
