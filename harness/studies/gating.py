"""Every kernel of every case through the gate. A case that is broken is told of and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from harness.errors import HillclimbError
from harness.judge.protocol import Watch
from harness.records import GateReport, Provenance, Record, Side
from harness.studies.judging import Judges, judged
from harness.studies.study import StudyCase


class Gated(Record):
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


class Results(Record):
    """All kernels, case by case, and what gated them."""

    results: tuple[Gated, ...]
    passed: bool
    """Whether every one did."""
    provenance: Provenance | None = None
    """Of the last judge that could be had; its digests are that case's."""


def gate_each(
    cases: Iterable[StudyCase], watch: Watch, tell: Callable[[Gated], None], *, trust_workspace: bool = False
) -> Results:
    """Gate every variant of every case; each is told as soon as it is known."""
    results: list[Gated] = []
    provenance: list[Provenance] = []
    for case in cases:
        for gated in _gate_case(case, watch, provenance, trust_workspace):
            results.append(gated)
            tell(gated)
    return Results(
        results=tuple(results),
        passed=all(gated.passed for gated in results),
        provenance=provenance[-1] if provenance else None,
    )


def _gate_case(
    case: StudyCase, watch: Watch, provenance: list[Provenance], trust_workspace: bool
) -> Iterator[Gated]:
    try:
        with judged(case, trust_workspace=trust_workspace) as (_, copy, judges):
            provenance.append(judges.ask(lambda judge: judge.describe()))
            for variant, side in copy.sides.items():
                yield _gate(case, variant, side, judges, watch)
    except HillclimbError as error:
        yield Gated(study=case.study, case=case.name, error=str(error))


def _gate(case: StudyCase, variant: str, side: Side, judges: Judges, watch: Watch) -> Gated:
    """One variant; what the machine or the contract does wrong ends this one alone."""
    gated = Gated(study=case.study, case=case.name, variant=variant)
    try:
        return gated.model_copy(update={"report": judges.ask(lambda judge: judge.gate(side, watch))})
    except HillclimbError as error:
        return gated.model_copy(update={"error": str(error)})
