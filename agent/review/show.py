"""Shows one candidate of a run, or its baseline: who proposed what, what was measured, and what it changes.

Told from the ledger; the diff comes from git's objects and the pairs from samples/. What is gone is said to be gone.
"""

from __future__ import annotations

import difflib
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import Samples, WebhookState
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.record.run import LEDGER
from hillclimb.agent.review.blocks import describe_machine, median_wall_clock_log_ratio
from hillclimb.agent.review.candidate_view import BaselineView, CandidateView, StageSummary
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Comparison, Pair, Profile
from hillclimb.harness.statistics.readings import log_ratio

_DIFF = (
    *("diff-tree", "-p", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--text"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
"""No program of the user's or of the repository's attributes takes part, and nothing can hide behind 'binary'."""


@dataclass(frozen=True)
class StoredRun:
    """A run's folder and repository, to read from."""

    repository: Repository
    folder: Path
    ledger: Ledger

    @classmethod
    def open(cls, repository: Repository, folder: Path) -> StoredRun:
        return cls(repository, folder, Ledger.read(folder / LEDGER))

    @property
    def run(self) -> str:
        return "/".join(self.folder.parts[-3:])


def show_candidate(shelf: StoredRun, n: int, *, blocks: bool) -> CandidateView:
    """Everything that is known of candidate n. Raises UsageError where the run has no such candidate."""
    candidates = shelf.ledger.candidates
    if not 1 <= n <= len(candidates):
        there = f"it has 1 to {len(candidates)}" if candidates else "it has none yet"
        raise UsageError(f"run {shelf.run} has no candidate {n}; {there}, and 'baseline'")
    candidate = candidates[n - 1]
    judged, (diff, note) = candidate.judged, _find_diff(shelf, candidate)
    pairs, missing = _read_pairs(shelf.folder / "samples" / f"{n}.json", Samples)
    return CandidateView(
        run=shelf.run,
        n=n,
        state="pending" if judged is None else "kept" if judged.kept else "rejected",
        proposal=candidate.proposal,
        confirming=candidate.confirming,
        judged=judged,
        settled=candidate.settled,
        webhook=candidate.webhook or WebhookState(),
        call=shelf.ledger.call_of(candidate),
        profile=_profile_of(shelf.ledger, judged.commit if judged else None),
        diff=diff,
        diff_missing=note,
        stages=summarise(pairs),
        samples_missing=missing,
        pairs=tuple(pairs) if blocks else (),
    )


def show_baseline(shelf: StoredRun, *, blocks: bool) -> BaselineView:
    """The run's baseline and noise floor. Raises UsageError where the run never began."""
    ledger = shelf.ledger
    if ledger.opened is None:
        raise UsageError(f"run {shelf.run} has not begun; 'hillclimb climb' takes it up")
    pairs, missing = _read_pairs(shelf.folder / "samples" / "noise.json", Comparison)
    base = ledger.opened.base
    return BaselineView(
        run=shelf.run,
        opened=ledger.opened,
        baselined=ledger.baselined,
        profile=_profile_of(ledger, base),
        stages=summarise(pairs),
        samples_missing=missing,
        pairs=tuple(pairs) if blocks else (),
    )


def _profile_of(ledger: Ledger, commit: str | None) -> Profile | None:
    return next((found.profile for found in ledger.profiles if found.commit == commit), None)


def summarise(pairs: Iterable[Pair]) -> tuple[StageSummary, ...]:
    """The pairs by stage and suite, in the order in which they were measured; of commands by the judge's clock."""
    found: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        is_command = any(block.metrics for block in pair.blocks)
        found.setdefault((pair.stage, f"{pair.suite} wall" if is_command else pair.suite), []).append(pair)
    return tuple(_stage(stage, suite, group) for (stage, suite), group in found.items())


def _stage(stage: str, suite: str, pairs: Sequence[Pair]) -> StageSummary:
    ratios = [[log_ratio(block) for block in pair.blocks] for pair in pairs if pair.blocks]
    medians = [statistics.median(of_pair) for of_pair in ratios]
    around = [value - middle for of_pair, middle in zip(ratios, medians, strict=True) for value in of_pair]
    return StageSummary(
        stage=stage,
        suite=suite,
        pairs=len(pairs),
        blocks=len(around),
        dropped=sum(pair.dropped for pair in pairs),
        dropped_for=tuple(cause for pair in pairs for cause in pair.dropped_for),
        median=statistics.median(medians) if medians else math.nan,
        between_pairs=statistics.stdev(medians) if len(medians) > 1 else None,
        within_pairs=statistics.stdev(around) if len(around) > len(medians) else None,
        clock=median_wall_clock_log_ratio(pairs),
        machine=describe_machine(pairs),
    )


def _read_pairs(path: Path, kind: type[Samples] | type[Comparison]) -> tuple[list[Pair], str]:
    """Raw pairs, or why there are none."""
    try:
        found = kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return [], f"{path.name} is not there"
    except OSError as error:
        return [], f"{path.name} cannot be read ({error.strerror})"
    except ValidationError:
        return [], f"{path.name} is damaged"
    if isinstance(found, Comparison):
        return list(found.pairs), ""
    told = [part.pairs for part in (found.screening, found.confirmation) if part]
    pairs = [pair for part in told for pair in part]
    return pairs, "" if pairs else "nothing was timed"


def _find_diff(shelf: StoredRun, candidate: Candidate) -> tuple[str, str]:
    """The diff against the incumbent it met, and why it is none or another one."""
    judged, repository = candidate.judged, shelf.repository
    if judged is None:
        return _proposed_diff(
            shelf, candidate.proposal, shelf.ledger.incumbent
        ), "not judged yet: as proposed"
    made = judged.commit or judged.tree
    if made is None:
        edits = _proposed_diff(shelf, candidate.proposal, judged.parent)
        return edits, "no tree was built: the edits as proposed"
    for name in (judged.parent, made):
        if repository.resolve(f"{name}^{{tree}}") is None:
            edits = _proposed_diff(shelf, candidate.proposal, judged.parent)
            return edits, f"{name} is gone from this repository: the edits as proposed"
    return repository.run(*_DIFF, judged.parent, made).decode(errors="replace"), ""


def _proposed_diff(shelf: StoredRun, proposal: Proposal, incumbent: str) -> str:
    """The proposal's edits against the incumbent's files, as far as those are there."""
    return "".join(
        line
        for edit in proposal.edits
        for line in _compare(edit.path, _old_text(shelf, incumbent, edit.path), edit.content or "")
    )


def _compare(path: str, old: str, new: str) -> Iterator[str]:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _old_text(shelf: StoredRun, commit: str, path: str) -> str:
    opened, repository = shelf.ledger.opened, shelf.repository
    place = f"{opened.case_path}/workspace/{path}" if opened else path
    blob = repository.resolve(f"{commit}:{place}")
    return repository.read([blob])[0].decode(errors="replace") if blob else ""
