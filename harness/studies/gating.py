"""Every kernel of every case through the gate. A case that is broken is told of and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.records import GateReport, Provenance, Record, Side, Watch
from hillclimb.harness.studies.judging import RestartingJudge, staged_judge
from hillclimb.harness.studies.study import StudyCase


class GateResult(Record):
    """One kernel, or a case of which none could be reached."""

    study: str
    case: str
    variant: str = ""
    """Empty where the case's own files are wrong, or no judge could be had for it."""
    report: GateReport | None = None
    error: str = ""
    """What went wrong where there is no report."""

    @property
    def passed(self) -> bool:
        return self.report is not None and self.report.passed


class GateResults(Record):
    """All kernels, case by case, and what gated them."""

    results: tuple[GateResult, ...]
    passed: bool
    """Whether every one did."""
    provenance: Provenance | None = None
    """Of the last judge that could be had; its digests are that case's."""


def gate_cases(
    cases: Iterable[StudyCase],
    watch: Watch,
    tell: Callable[[GateResult], None],
    *,
    trust_workspace: bool = False,
) -> GateResults:
    """Gate every variant of every case; each is told as soon as it is known."""
    results: list[GateResult] = []
    provenance: list[Provenance] = []
    for case in cases:
        for gated in _gate_case(case, watch, provenance, trust_workspace):
            results.append(gated)
            tell(gated)
    return GateResults(
        results=tuple(results),
        passed=all(gated.passed for gated in results),
        provenance=provenance[-1] if provenance else None,
    )


def _gate_case(
    case: StudyCase, watch: Watch, provenance: list[Provenance], trust_workspace: bool
) -> Iterator[GateResult]:
    try:
        with staged_judge(case, trust_workspace=trust_workspace) as (_, copy, judges):
            provenance.append(judges.ask(lambda judge: judge.describe()))
            for variant, side in copy.sides.items():
                yield _gate(case, variant, side, judges, watch)
    except HillclimbError as error:
        yield GateResult(study=case.study, case=case.name, error=str(error))


def _gate(case: StudyCase, variant: str, side: Side, judges: RestartingJudge, watch: Watch) -> GateResult:
    """One variant; what the machine or the contract does wrong ends this one alone."""
    gated = GateResult(study=case.study, case=case.name, variant=variant)
    try:
        return gated.model_copy(update={"report": judges.ask(lambda judge: judge.gate(side, watch))})
    except HillclimbError as error:
        return gated.model_copy(update={"error": str(error)})
