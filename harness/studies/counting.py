"""Masked lanes and loop trips of every kernel of every case, counted by Triton's interpreter: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from hillclimb.harness.errors import HillclimbError, MachineError
from hillclimb.harness.records import Lanes, Record, Side, Watch
from hillclimb.harness.studies.judging import RestartingJudge, staged_judge
from hillclimb.harness.studies.study import StudyCase


class LaneResult(Record):
    """One kernel on one problem, or a case of which nothing could be counted."""

    study: str
    case: str
    variant: str = ""
    lanes: Lanes | None = None
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.lanes is not None and bool(self.lanes.kernels)


def count_cases(
    cases: Iterable[StudyCase], problems: Sequence[str], watch: Watch, tell: Callable[[LaneResult], None]
) -> tuple[LaneResult, ...]:
    """Count on these problems, or on the largest of each case that can be interpreted; told as soon as known."""
    results = []
    for case in cases:
        for counted in _count_case(case, problems, watch):
            results.append(counted)
            tell(counted)
    return tuple(results)


def _count_case(case: StudyCase, problems: Sequence[str], watch: Watch) -> Iterator[LaneResult]:
    told = LaneResult(study=case.study, case=case.name)
    try:
        with staged_judge(case) as (_, copy, judges):
            for variant, side in copy.sides.items():
                yield from _count(told.model_copy(update={"variant": variant}), side, judges, problems, watch)
    except HillclimbError as error:
        yield told.model_copy(update={"error": str(error)})


def _count(
    told: LaneResult, side: Side, judges: RestartingJudge, problems: Sequence[str], watch: Watch
) -> Iterator[LaneResult]:
    """One variant; what the machine does wrong ends this one alone."""
    try:
        for lanes in judges.ask(lambda judge: judge.lanes(side, watch, problems)).problems:
            yield told.model_copy(update={"lanes": lanes})
    except MachineError as error:
        yield told.model_copy(update={"error": str(error)})
