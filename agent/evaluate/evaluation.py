"""Judges outside a run: one version of a case's workspace against another, or a case's baseline against its gate."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hillclimb.agent.climb.try_candidate import TrialOutcome, TrialSides, judge_sides
from hillclimb.agent.evaluate.versions import HEAD, find_opponent, read_version
from hillclimb.agent.evaluate.working_case import place_case, read_working_files, workspace_of
from hillclimb.agent.git.version import Version, why_not_allowed, write_version
from hillclimb.agent.machine.timing_device import is_interpreted, require_timing_device
from hillclimb.agent.proposers.submission import read_knobs
from hillclimb.agent.record.entries import WebhookState
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.errors import IncumbentFault, UsageError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.knobs.knobs import KNOBS_FILE, KnobValue, replace_defaults, to_environment
from hillclimb.harness.records import (
    Confirmation,
    GateReport,
    OracleReport,
    Progress,
    Provenance,
    Reason,
    Record,
    Screening,
    Side,
    Watch,
)

WORKING_FILES = "the working files"


class CheckResult(Record):
    """What `hillclimb check` found."""

    case: str
    sound: bool
    """Whether the gate passed, and the contract accepts no wrong result but those that it excuses."""
    gate: GateReport
    provenance: Provenance
    oracle: OracleReport | None = None
    """Wrong results, and which of them the contract accepts; None where the gate rejects the baseline."""
    interpreted: int | None = None
    """Problems small enough to be interpreted, where there is no GPU for a case that is for one: those are what the
    gate ran, and the others were only compiled. None where the case's own device is here. Nothing is ever timed."""
    unread_knobs: tuple[str, ...] = ()
    """Knobs that the source never reads, as far as that can be told."""


class EvaluationResult(WebhookState):
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
    yardstick: str | None = None
    """SHA-256 of the file that it met, where that was a yardstick."""
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

    def posted(self, webhook: WebhookState) -> EvaluationResult:
        """The same with what became of a post about it."""
        return self.model_copy(update=dict(webhook))


@dataclass(frozen=True)
class EvaluationRequest:
    """What to judge against what; None stands for the working files, and for HEAD. A file of Python is a yardstick."""

    case: Path
    candidate: str | None = None
    against: str | None = None
    knobs: Sequence[str] = ()
    """`NAME=VALUE`, as typed."""
    trust_workspace: bool = False


def check(folder: Path, watch: Watch, *, trust_workspace: bool) -> CheckResult:
    """Validate a case, bring its working files before the gate and put its contract to the test.

    Raises CaseError for what is wrong with it, such as a problem on which every kernel is right.
    """
    case = Case(folder)
    case.first_to_sweep()
    files = read_working_files(case)
    with (
        scratch() as place,
        open_local_judge(case, files, place, trust_workspace=trust_workspace) as judge,
    ):
        workspace = workspace_of(files)
        tree = write_version(workspace, place / "workspace")
        texts = {path: file.content.decode(errors="replace") for path, file in workspace.items()}
        counted = _ProblemCounter(watch)
        gate = judge.gate(Side(tree=str(tree)), counted)
        oracle = judge.check_oracle(watch) if gate.passed else None
        return CheckResult(
            case=case.name,
            sound=oracle is not None and not oracle.accepted,
            gate=gate,
            provenance=judge.describe(),
            oracle=oracle,
            interpreted=counted.problems if is_interpreted(case) else None,
            unread_knobs=() if case.settings.command else unread_knobs(texts, case.knobs),
        )


class _ProblemCounter:
    """Passes progress on, and notes how many problems the gate says to run."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self.problems = watch, 0

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "gate":
            self.problems = max(self.problems, progress.of)
        self._watch(progress)


def evaluate(question: EvaluationRequest, watch: Watch) -> EvaluationResult:
    """Gate, screen and confirm. The case's working contract and benchmarks decide, whatever the versions hold.

    As in a climb, knob values are screened as environment variables and confirmed as defaults of the source. Raises
    UsageError for a yardstick that is wrong by the case's contract.
    """
    case = Case(question.case)
    require_timing_device(case)
    candidate = read_version(case, question.candidate or str(case.workspace))
    opponent = find_opponent(case, question.against or HEAD)
    values = read_knobs(candidate, question.knobs)
    knobs = to_environment(values)
    if question.trust_workspace:
        _expect_same_code(candidate, opponent.committed)
    forbidden = why_not_allowed(candidate, opponent.committed, case.settings.mutable)
    with (
        scratch() as place,
        open_local_judge(
            case, read_working_files(case), place, trust_workspace=question.trust_workspace
        ) as judge,
    ):
        if forbidden:
            outcome = TrialOutcome(Reason.OUTSIDE_WORKSPACE, forbidden)
        else:
            side = Side(tree=str(write_version(candidate, place / secrets.token_hex(4))), knobs=knobs)
            tree = write_version(opponent.version, place / secrets.token_hex(4))
            other = Side(tree=str(tree), is_yardstick=opponent.yardstick is not None)
            if other.is_yardstick:
                _expect_right(judge.gate(other, watch), question.against)
            promoted = Side(tree=str(write_version(promote(candidate, values), place / secrets.token_hex(4))))
            confirmed = promoted if values else side
            sides = TrialSides(screened=side, confirmed=confirmed, incumbent=other, baseline=other)
            with _naming_yardstick(question.against if other.is_yardstick else None):
                outcome = judge_sides(
                    lambda question: question(judge), sides, lambda: case.settings.duel.alpha, watch
                )
        return EvaluationResult(
            case=case.name,
            candidate=question.candidate or WORKING_FILES,
            against=question.against or HEAD,
            yardstick=opponent.yardstick,
            knobs=knobs,
            kept=outcome.reason is None,
            reason=outcome.reason,
            detail=outcome.detail,
            provenance=judge.describe(),
            screening=outcome.screening,
            confirmation=outcome.confirmation,
        )


def promote(version: Version, values: Mapping[str, KnobValue]) -> Version:
    """The version with knob values as its source's defaults, which is how a win is confirmed and committed."""
    if not values:
        return version
    file = version[KNOBS_FILE]
    text = replace_defaults(file.content.decode(), values)
    return {**version, KNOBS_FILE: replace(file, content=text.encode())}


def _expect_same_code(candidate: Version, against: Version) -> None:
    """Raises UsageError unless the two differ in nothing but the knobs that are set."""
    if candidate != against:
        raise UsageError(
            "--trust-workspace judges knob values only, and the code differs from the other version's, or from HEAD's; "
            "give --knob and versions with the same files, or install bubblewrap"
        )


def _expect_right(gate: GateReport, yardstick: str | None) -> None:
    if not gate.passed:
        told = gate.detail.strip().splitlines()[-1:]
        raise UsageError(
            f"{yardstick}: is no yardstick of this case ({': '.join([str(gate.reason), *told])}); "
            "it is one file, which runs alone: mend it, or judge against another one"
        )


@contextmanager
def _naming_yardstick(yardstick: str | None) -> Iterator[None]:
    """A yardstick that fails in a duel is its author's to mend."""
    try:
        yield
    except IncumbentFault as fault:
        if yardstick is None:
            raise
        told = str(fault).strip().splitlines()[-1]
        raise UsageError(f"{yardstick}: passed the gate and failed in a duel ({told}); mend it") from fault


@contextmanager
def open_local_judge(
    case: Case, files: Version, place: Path, *, trust_workspace: bool
) -> Iterator[LocalJudge]:
    """A judge by the rules of a case's files, which are written below `place`."""
    placed = place_case(files, case.name, place / "case")
    with closing(LocalJudge(placed.folder, place / "judge.log", trust_workspace=trust_workspace)) as judge:
        yield judge


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a while, readable by a judge that runs candidates under another user."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
