"""One case of a study with a judge for all of its kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from harness.case.case import Case
from harness.judge.pool import LocalJudge
from harness.studies.study import StudyCase
from harness.studies.variants import YARDSTICK, Staged, staged
from harness.studies.yardstick import compile_ahead


@contextmanager
def judged(
    case: StudyCase, *, timed: Collection[str] = (), trust_workspace: bool = False
) -> Iterator[tuple[Case, Staged, LocalJudge]]:
    """The case as it was read, its copy with a workspace for each variant, and a judge of that copy.

    `timed` names the problems that are to be timed. Raises CaseError for a file that is wrong, and what LocalJudge
    raises.
    """
    read = Case(case.folder)
    with (
        tempfile.TemporaryDirectory(prefix="hillclimb-study-") as place,
        staged(read, timed=timed) as made,
    ):
        copy = _with_yardstick_compiled(made)
        log = Path(place, "judge.log")
        with closing(LocalJudge(copy.folder, log, trust_workspace=trust_workspace)) as judge:
            yield read, copy, judge


def _with_yardstick_compiled(copy: Staged) -> Staged:
    """Before there is a judge: it holds the GPU. Where that fails, without the yardstick."""
    if YARDSTICK not in copy.sides or not (trouble := compile_ahead(copy)):
        return copy
    others = {name: side for name, side in copy.sides.items() if name != YARDSTICK}
    return replace(copy, sides=others, trouble=trouble)
