"""What studies and cases there are: a study is a family whose cases bring a baseline and at least one other kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import choices

BASELINE = "baseline"
"""The variant that the others are measured against: workspace/baseline.py."""

_MARK = Path("workspace") / f"{BASELINE}.py"


@dataclass(frozen=True, order=True)
class StudyCase:
    """One case of a study; nothing in its folder has been read yet."""

    study: str
    name: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.study}/{self.name}"


def find_studies(cases: Path) -> dict[str, list[StudyCase]]:
    """Every study below the folder `cases`, and its cases, both in the order of their names."""
    found: dict[str, list[StudyCase]] = {}
    for mark in sorted(cases.glob(f"[!_.]*/[!_.]*/{_MARK}")):
        folder = mark.parents[1]
        case = StudyCase(folder.parent.name, folder.name, folder)
        found.setdefault(case.study, []).append(case)
    return found


def choose_cases(cases: Path, study: str | None = None, name: str | None = None) -> list[StudyCase]:
    """The cases meant by a study, a case, both or neither. Raises UsageError that names the choices."""
    studies = find_studies(cases)
    if not studies:
        raise UsageError(f"no study below {cases}: no case there has a workspace/{BASELINE}.py")
    if study is not None and study not in studies:
        raise UsageError(f"no study {study!r}; there are: {choices(study, studies)}")
    offered = [case for known, cases_of in studies.items() if study in (None, known) for case in cases_of]
    if name is None:
        return offered
    matching = [case for case in offered if case.name == name]
    if not matching:
        where = f"study {study!r}" if study else "any study"
        raise UsageError(f"no case {name!r} in {where}; there are: {choices(name, map(str, offered))}")
    if len(matching) > 1:
        raise UsageError(
            f"case {name!r} is in several studies; name one: {', '.join(c.study for c in matching)}"
        )
    return matching
