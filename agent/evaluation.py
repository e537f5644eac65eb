"""Judges outside a run: one version of a case's workspace against another, or a case's baseline against its gate."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.disk import Disk
from agent.repository import Repository
from agent.snapshot import case_path
from agent.trees import Trees
from harness.case.case import Case
from harness.case.digest import digest_files
from harness.case.knobs import load_knobs, parse, to_environment
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
    screening: Screening
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
        tree = _copy(case.workspace, scratch / "workspace")
        provenance = judge.describe()
        return Checked(case=case.name, gate=judge.gate(Side(tree=str(tree)), watch), provenance=provenance)


def evaluate(question: Question, watch: Watch) -> Evaluated:
    """Gate, screen and confirm. The case's working contract and benchmarks decide, whatever the versions hold."""
    case = Case(question.case)
    with _scratch() as scratch:
        candidate = _find(case, question.candidate or str(case.workspace), scratch / "candidate")
        against = _find(case, question.against or HEAD, scratch / "against")
        side = Side(tree=str(candidate), knobs=_parse_knobs(candidate, question.knobs))
        if question.trust_workspace:
            _expect_same_code(candidate, against)
        log = scratch / "judge.log"
        with closing(LocalJudge(case.folder, log, trust_workspace=question.trust_workspace)) as judge:
            return _judge(case, judge, question, side, Side(tree=str(against)), watch)


def _judge(
    case: Case, judge: LocalJudge, question: Question, side: Side, against: Side, watch: Watch
) -> Evaluated:
    screening, confirmation = judge.screen(side, against, watch), None
    if screening.reason is None:
        confirmation = judge.confirm(side, against, against, case.settings.duel.alpha, watch)
    verdict = confirmation or screening
    return Evaluated(
        case=case.name,
        candidate=question.candidate or "the working files",
        against=question.against or HEAD,
        knobs=side.knobs,
        kept=verdict.reason is None,
        reason=verdict.reason,
        detail=verdict.detail,
        provenance=judge.describe(),
        screening=screening,
        confirmation=confirmation,
    )


def _find(case: Case, what: str, scratch: Path) -> Path:
    """A workspace by folder or by revision, as files nobody changes meanwhile."""
    folder = Path(what)
    if folder.is_dir():
        return _copy(folder / "workspace" if (folder / "case.yaml").is_file() else folder, scratch)
    repository = Repository.open(case.folder)
    commit = repository.resolve(f"{what}^{{commit}}")
    if commit is None:
        raise UsageError(f"{what!r} is neither a folder nor a revision; name one with --from or --against")
    place = f"{case_path(repository, case.folder)}/workspace"
    tree = repository.resolve(f"{commit}:{place}")
    if tree is None:
        raise UsageError(f"{what} has no {place}; commit the case, or name another version with --against")
    return Trees(repository, Disk(), scratch).workspace(tree)


def _expect_same_code(candidate: Path, against: Path) -> None:
    """Raises UsageError unless the two differ in nothing but the knobs that are set."""
    if digest_files(candidate, _files(candidate)) != digest_files(against, _files(against)):
        raise UsageError(
            "--trust-workspace judges knob values only, and the code of the two versions differs; "
            "give --knob and versions with the same files, or install bubblewrap"
        )


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _copy(workspace: Path, target: Path) -> Path:
    link = next((path for path in workspace.rglob("*") if path.is_symlink()), None)
    if link:
        raise UsageError(f"{link}: is a symbolic link, which a workspace may not hold; put a file there")
    shutil.copytree(workspace, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def _parse_knobs(workspace: Path, given: Sequence[str]) -> dict[str, str]:
    knobs = load_knobs(workspace / "knobs.yaml")
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
