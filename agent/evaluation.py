"""Judges outside a run: one version of a case's workspace against another, or a case's baseline against its gate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.repository import Repository
from agent.snapshot import case_path
from agent.version import Version, read_folder, read_tree, why_not_allowed, write_version
from harness.case.case import Case
from harness.case.knobs import parse, parse_knobs, to_environment
from harness.errors import UsageError
from harness.judge.pool import LocalJudge
from harness.judge.protocol import Watch
from harness.records import Confirmation, GateReport, Provenance, Reason, Record, Screening, Side

HEAD = "HEAD"


class Checked(Record):
    """What `hillclimb check` found."""

    case: str
    gate: GateReport
    provenance: Provenance


class Evaluated(Record):
    """What `hillclimb evaluate` found."""

    case: str
    candidate: str
    against: str
    knobs: dict[str, str]
    kept: bool
    reason: Reason | None
    detail: str
    provenance: Provenance
    screening: Screening | None
    """None where the candidate changes what it may not: nothing was run then."""
    confirmation: Confirmation | None


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
    """Validate a case and bring its working files before the gate. Raises CaseError for what is wrong with it."""
    case = Case(folder)
    with (
        _scratch() as scratch,
        closing(LocalJudge(case.folder, scratch / "judge.log", trust_workspace=trust_workspace)) as judge,
    ):
        tree = write_version(read_folder(case.workspace), scratch / "workspace")
        provenance = judge.describe()
        return Checked(case=case.name, gate=judge.gate(Side(tree=str(tree)), watch), provenance=provenance)


def evaluate(question: Question, watch: Watch) -> Evaluated:
    """Gate, screen and confirm. The case's working contract and benchmarks decide, whatever the versions hold."""
    case = Case(question.case)
    candidate = _read(case, question.candidate or str(case.workspace))
    against = _read(case, question.against or HEAD)
    knobs = _parse_knobs(candidate, question.knobs)
    if question.trust_workspace:
        _expect_same_code(candidate, against)
    forbidden = why_not_allowed(candidate, against, case.settings.mutable)
    with (
        _scratch() as scratch,
        closing(
            LocalJudge(case.folder, scratch / "judge.log", trust_workspace=question.trust_workspace)
        ) as judge,
    ):
        if forbidden:
            verdict = _Verdict(Reason.OUTSIDE_WORKSPACE, forbidden)
        else:
            side = Side(tree=str(write_version(candidate, scratch / "candidate")), knobs=knobs)
            other = Side(tree=str(write_version(against, scratch / "against")))
            verdict = _judge(judge, side, other, case.settings.duel.alpha, watch)
        return Evaluated(
            case=case.name,
            candidate=question.candidate or "the working files",
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


def _read(case: Case, what: str) -> Version:
    """A workspace by folder or by revision, as it is now."""
    folder = Path(what)
    if folder.is_dir():
        return read_folder(folder / "workspace" if (folder / "case.yaml").is_file() else folder)
    repository = Repository.open(case.folder)
    commit = repository.resolve(f"{what}^{{commit}}")
    if commit is None:
        raise UsageError(f"{what!r} is neither a folder nor a revision; name one with --from or --against")
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


def _parse_knobs(version: Version, given: Sequence[str]) -> dict[str, str]:
    file = version.get("knobs.yaml")
    knobs = parse_knobs(file.content.decode(errors="replace"), Path("knobs.yaml")) if file else {}
    pairs = [text.partition("=") for text in given]
    wrong = next((name for name, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise UsageError(f"--knob {wrong}: give it as NAME=VALUE")
    return to_environment({name: parse(knobs, name, text) for name, _, text in pairs})


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for a while, readable by a judge that runs candidates under another user."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
