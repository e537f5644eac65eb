"""Judges outside a run: one version of a case's workspace against another, or a case's baseline against its gate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.entries import Webhook
from agent.place import expect_clock, is_interpreted
from agent.proposers.hand import read_knobs
from agent.repository import Repository
from agent.snapshot import case_path
from agent.version import Version, read_folder, read_tree, why_not_allowed, write_version
from harness.case.case import Case
from harness.case.knobs import to_environment
from harness.errors import UsageError
from harness.judge.pool import LocalJudge
from harness.judge.protocol import Progress, Watch
from harness.records import (
    Confirmation,
    GateReport,
    OracleReport,
    Provenance,
    Reason,
    Record,
    Screening,
    Side,
)

HEAD = "HEAD"
WORKING_FILES = "the working files"


class Checked(Record):
    """What `hillclimb check` found."""

    case: str
    gate: GateReport
    provenance: Provenance
    oracle: OracleReport | None = None
    """Wrong results that the contract accepts; None where the gate rejects the baseline."""
    interpreted: int | None = None
    """Problems small enough to be interpreted, where there is no GPU for a case that is for one: those are what the
    gate ran, and the others were only compiled. None where the case's own device is here. Nothing is ever timed."""


class Evaluated(Webhook):
    """What `hillclimb evaluate` found, and what became of a post about it."""

    case: str
    candidate: str
    against: str
    """What it met: as it was named, or the commit of the run's incumbent."""
    knobs: dict[str, str]
    kept: bool
    reason: Reason | None
    detail: str
    provenance: Provenance
    screening: Screening | None
    """None where the candidate changes what it may not: nothing was run then."""
    confirmation: Confirmation | None
    run: str | None = None
    """`<family>/<case>/<tag>`, where it became a candidate of a run (--commit); None elsewhere, the rest too."""
    n: int | None = None
    """The candidate's number in that run."""
    commit: str | None = None
    """None where no tree could be built."""
    ref: str | None = None
    """What points at the commit: the run's branch, or the rejected candidate's own ref."""
    author: str | None = None
    idea: str | None = None
    family: str | None = None
    files: tuple[str, ...] = ()
    """Files of the workspace that it changes against the incumbent."""

    def posted(self, webhook: Webhook) -> Evaluated:
        """The same with what became of a post about it."""
        return self.model_copy(update=dict(webhook))


@dataclass(frozen=True)
class Question:
    """What to judge against what; None stands for the working files, and for HEAD."""

    case: Path
    candidate: str | None = None
    against: str | None = None
    knobs: Sequence[str] = ()
    """`NAME=VALUE`, as typed."""
    trust_workspace: bool = False


def check(folder: Path, watch: Watch, *, trust_workspace: bool) -> Checked:
    """Validate a case, bring its working files before the gate and put its contract to the test.

    Raises CaseError for what is wrong with it.
    """
    case = Case(folder)
    with (
        scratch() as place,
        closing(LocalJudge(case.folder, place / "judge.log", trust_workspace=trust_workspace)) as judge,
    ):
        tree = write_version(read_folder(case.workspace), place / "workspace")
        counted = _Counting(watch)
        gate = judge.gate(Side(tree=str(tree)), counted)
        return Checked(
            case=case.name,
            gate=gate,
            provenance=judge.describe(),
            oracle=judge.try_oracle(watch) if gate.passed else None,
            interpreted=counted.problems if is_interpreted(case) else None,
        )


class _Counting:
    """Passes progress on, and notes how many problems the gate says to run."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self.problems = watch, 0

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "gate":
            self.problems = max(self.problems, progress.of)
        self._watch(progress)


def evaluate(question: Question, watch: Watch) -> Evaluated:
    """Gate, screen and confirm. The case's working contract and benchmarks decide, whatever the versions hold."""
    case = Case(question.case)
    expect_clock(case)
    candidate = read_version(case, question.candidate or str(case.workspace))
    against = read_version(case, question.against or HEAD)
    knobs = to_environment(read_knobs(candidate, question.knobs))
    if question.trust_workspace:
        _expect_same_code(candidate, against)
    forbidden = why_not_allowed(candidate, against, case.settings.mutable)
    with (
        scratch() as place,
        closing(
            LocalJudge(case.folder, place / "judge.log", trust_workspace=question.trust_workspace)
        ) as judge,
    ):
        if forbidden:
            verdict = _Verdict(Reason.OUTSIDE_WORKSPACE, forbidden)
        else:
            side = Side(tree=str(write_version(candidate, place / "candidate")), knobs=knobs)
            other = Side(tree=str(write_version(against, place / "against")))
            verdict = _judge(judge, side, other, case.settings.duel.alpha, watch)
        return Evaluated(
            case=case.name,
            candidate=question.candidate or WORKING_FILES,
            against=question.against or HEAD,
            knobs=knobs,
            kept=verdict.reason is None,
            reason=verdict.reason,
            detail=verdict.detail,
            provenance=judge.describe(),
            screening=verdict.screening,
            confirmation=verdict.confirmation,
        )


@dataclass(frozen=True)
class _Verdict:
    reason: Reason | None
    detail: str
    screening: Screening | None = None
    confirmation: Confirmation | None = None


def _judge(judge: LocalJudge, side: Side, against: Side, alpha: float, watch: Watch) -> _Verdict:
    screening = judge.screen(side, against, watch)
    if screening.reason:
        return _Verdict(screening.reason, screening.detail, screening)
    confirmation = judge.confirm(side, against, against, alpha, watch)
    return _Verdict(confirmation.reason, confirmation.detail, screening, confirmation)


def read_version(case: Case, what: str) -> Version:
    """A workspace by folder or by revision, as it is now."""
    folder = Path(what)
    if folder.is_dir():
        return read_folder(folder / "workspace" if (folder / "case.yaml").is_file() else folder)
    repository = Repository.open(case.folder)
    commit = repository.resolve(f"{what}^{{commit}}")
    if commit is None:
        raise UsageError(f"{what!r} is neither a folder nor a revision; name a path that exists, or a commit")
    place = f"{case_path(repository, case.folder)}/workspace"
    tree = repository.resolve(f"{commit}:{place}")
    if tree is None:
        raise UsageError(f"{what} has no {place}; commit the case, or name another version with --against")
    return read_tree(repository, tree)


def _expect_same_code(candidate: Version, against: Version) -> None:
    """Raises UsageError unless the two differ in nothing but the knobs that are set."""
    if candidate != against:
        raise UsageError(
            "--trust-workspace judges knob values only, and the code of the two versions differs; "
            "give --knob and versions with the same files, or install bubblewrap"
        )


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a while, readable by a judge that runs candidates under another user."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
