"""Landing: what a person or a coding agent brings becomes one candidate of a run, by the road that all others take.

The controller runs one session with a proposer that has this one idea. No budget of the run applies to it, since
somebody asked for it; it counts in them afterwards. An open run stays open: a later climb goes on with
it. A finished run is finished again afterwards, with its last win measured against its first commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from hillclimb.agent.climb.budget import NO_LIMIT
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, MakeJudge, Tools
from hillclimb.agent.evaluate.evaluation import (
    WORKING_FILES,
    EvaluationRequest,
    EvaluationResult,
)
from hillclimb.agent.evaluate.versions import read_version
from hillclimb.agent.evaluate.working_case import read_working_files, workspace_of
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.snapshot import case_path
from hillclimb.agent.git.version import Version, read_tree
from hillclimb.agent.machine.timing_device import require_timing_device
from hillclimb.agent.proposers.submission import Submission, SubmissionProposer, to_proposal
from hillclimb.agent.record.entries import Samples, WebhookState
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.record.run import LEDGER, choose_tag, run_folder
from hillclimb.agent.screen.events import Emit, Event, OpenedEvent, ProgressEvent, TroubleEvent
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.knobs import to_environment
from hillclimb.harness.records import Progress, Provenance, Watch


@dataclass(frozen=True)
class CandidateSubmission:
    """What to judge, as which run's candidate, and how it is called."""

    question: EvaluationRequest
    tag: str | None = None
    author: Literal["human", "agent"] = "human"
    idea: str = ""
    family: str = ""


def submit_candidate(
    landing: CandidateSubmission, make_judge: MakeJudge, tools: Tools
) -> EvaluationResult | None:
    """Judge it against the run's incumbent and record it in the run, as a commit on its branch if it is kept.

    None where the user interrupted it; the same call, or a climb, goes on with it. Raises UsageError where there is
    nothing to judge or another process owns the run.
    """
    question = landing.question
    case, repository = Case(question.case), tools.open_repository(question.case)
    require_timing_device(case)
    tag = choose_tag(repository, case.name, landing.tag, tools.clock)
    folder = run_folder(repository, case.name, tag)
    ledger, read = Ledger.read(folder / LEDGER), _reader(repository, case)
    if question.candidate is None and question.knobs and ledger.opened:
        named = "the incumbent", read(ledger.incumbent)
    else:
        named = _named(question, case)
    brought = _read_submission(landing, *named, identity=repository.user_identity())
    working = workspace_of(read_working_files(case))
    to_proposal(brought, read(ledger.incumbent) if ledger.opened else working)
    ended = ledger.finished if ledger.finished and not ledger.finished.interrupted else None
    hand = SubmissionProposer(brought, read, len(ledger.candidates) - (1 if ledger.pending else 0), ended)
    judges: list[Provenance] = []
    climb(
        ClimbRequest(case=question.case, tag=tag, budgets=NO_LIMIT),
        make_judge,
        lambda background: hand,
        replace(tools, emit=_recording_provenance(judges, tools.emit)),
    )
    ledger = Ledger.read(folder / LEDGER)
    candidate = ledger.candidates[hand.n - 1] if hand.n and hand.n <= len(ledger.candidates) else None
    if candidate is None or not candidate.settled:
        return None
    return _evaluated(candidate, landing, folder, (judges or [_opened_by(ledger)])[-1])


class ProgressRelay:
    """What a person who waits for one verdict is told: the step of the measurement, and trouble."""

    def __init__(self, watch: Watch, notice: Callable[[str], None]) -> None:
        self._watch, self._notice = watch, notice

    def forward(self, event: Event) -> None:
        if isinstance(event, TroubleEvent):
            self._notice(event.message)
        if isinstance(event, ProgressEvent):
            progress = Progress(stage=event.stage, done=event.done, of=event.of, speedup=event.speedup)
            self._watch(progress)


def _recording_provenance(judges: list[Provenance], emit: Emit) -> Emit:
    """Passes events on, and notes who judges."""

    def show(event: Event) -> None:
        if isinstance(event, OpenedEvent):
            judges.append(event.provenance)
        emit(event)

    return show


def _named(question: EvaluationRequest, case: Case) -> tuple[str, Version]:
    """The tree that was asked for, and what to call it."""
    return question.candidate or WORKING_FILES, read_version(case, question.candidate or str(case.workspace))


def _read_submission(landing: CandidateSubmission, name: str, version: Version, identity: str) -> Submission:
    question = landing.question
    if question.against is not None:
        raise UsageError(
            f"--against {question.against}: with --commit the run's incumbent is what must be beaten; drop one of them"
        )
    return Submission(
        name=name,
        version=version,
        knobs=question.knobs,
        author=landing.author,
        idea=landing.idea,
        family=landing.family,
        identity=identity,
    )


def _reader(repository: Repository, case: Case) -> Callable[[str], Version]:
    def read(commit: str) -> Version:
        place = f"{case_path(repository, case.folder)}/workspace"
        tree = repository.resolve(f"{commit}:{place}")
        if tree is None:
            raise UsageError(
                f"commit {commit} has no {place} or is gone; fetch it again, or start a new --tag"
            )
        return read_tree(repository, tree, place)

    return read


def _evaluated(
    candidate: Candidate, landing: CandidateSubmission, folder: Path, provenance: Provenance
) -> EvaluationResult:
    """The record of `evaluate`, told from the ledger and the samples."""
    judged, proposal = candidate.judged, candidate.proposal
    assert judged is not None  # it is settled
    samples = _samples(folder / "samples" / f"{candidate.n}.json", candidate.n)
    return EvaluationResult(
        case="/".join(folder.parts[-3:-1]),
        candidate=landing.question.candidate or WORKING_FILES,
        against=judged.parent,
        knobs=to_environment(proposal.knobs),
        kept=judged.kept,
        reason=judged.reason,
        detail=judged.detail,
        provenance=provenance,
        screening=samples.screening,
        confirmation=samples.confirmation,
        run="/".join(folder.parts[-3:]),
        n=candidate.n,
        commit=judged.commit,
        ref=judged.ref,
        author=proposal.author,
        idea=proposal.idea,
        family=proposal.family,
        files=tuple(edit.path for edit in proposal.edits),
    ).posted(candidate.webhook or WebhookState())


def _samples(path: Path, n: int) -> Samples:
    """The raw pairs; a file that is gone tells nothing, the verdict stands in the ledger."""
    try:
        return Samples.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Samples(n=n)


def _opened_by(ledger: Ledger) -> Provenance:
    assert ledger.opened is not None  # it has candidates
    return ledger.opened.provenance
