"""Reviewing: a commit is measured again, here and now, by a fresh judge and the rules that lie in the commit itself.

What its trailers claim stands beside what is found. Nothing is written: no ledger, no ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hillclimb.agent.climb.try_candidate import TrialSides, judge_sides
from hillclimb.agent.evaluate.evaluation import scratch
from hillclimb.agent.evaluate.review_result import Claim, ReviewFinding, ReviewKind, ReviewResult
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.snapshot import changed_fixed_file
from hillclimb.agent.git.trees import MaterialisedTrees
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.machine.timing_device import require_timing_device
from hillclimb.agent.record.trailers import read_blocks, read_interval, to_one_line
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.settings import is_unscored
from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.records import Estimate, Interval, Provenance, Reason, Side, Watch, last_estimate

PARENT, BASELINE = "parent", "baseline"
DUEL: Final = "duel"
MEASURED: Final = "first-last"

OpenJudge = Callable[[Path, Path], Judge]
"""(case folder, log file) -> a fresh judge."""


@dataclass(frozen=True)
class ReviewTarget:
    """A commit under review: where the case lies in it, what it claims, and what it is measured against."""

    repository: Repository
    case_path: str
    commit: str
    against: str
    mode: str
    """parent, baseline or a revision."""
    trailers: Mapping[str, str] = field(default_factory=dict)

    @property
    def case_name(self) -> str:
        return "/".join(self.case_path.split("/")[-2:])


def find_subject(repository: Repository, revision: str, against: str, case: str | None) -> ReviewTarget:
    """The commit that a revision names, and the other side. Raises UsageError for what cannot be found."""
    commit = _commit(repository, revision)
    message = repository.run("log", "-1", "--no-show-signature", "--format=%B", commit)
    trailers = _claims(message.decode(errors="replace"))
    path = find_case_path(repository, commit, case or trailers.get("Run", "").rpartition("/")[0], revision)
    return ReviewTarget(
        repository, path, commit, _other(repository, commit, against, trailers), against, trailers
    )


def _claims(message: str) -> dict[str, str]:
    """The trailers of a commit; of a squash those of its last win, whose own speedup is but a part of the commit's."""
    blocks = read_blocks(message)
    found = blocks[-1] if blocks else {}
    return {
        name: to_one_line(value) for name, value in found.items() if len(blocks) == 1 or name != "Speedup"
    }


def find_case_path(repository: Repository, commit: str, name: str, revision: str) -> str:
    """Where `<family>/<case>` lies in a commit. Raises UsageError."""
    if not name:
        raise UsageError(
            f"{revision}: is not a commit of a run (it has no Hillclimb-Run line); name the case with --case"
        )
    files = repository.list_files(commit)
    found = [
        path.removesuffix("/case.yaml")
        for path in sorted(files)
        if path == f"{name}/case.yaml" or path.endswith(f"/{name}/case.yaml")
    ]
    preferred = [path for path in found if path == f"cases/{name}"] or found
    if len(preferred) != 1:
        where = f"is in {', '.join(preferred)}" if preferred else "is not in that commit"
        raise UsageError(f"{revision}: case {name} {where}; name its folder with --case, as cases/{name}")
    return preferred[0]


def duel(subject: ReviewTarget, open_judge: OpenJudge, watch: Watch) -> ReviewResult:
    """Gate, screen and confirm the commit against the other side, at the alpha of its case."""
    with _open_review(subject, open_judge) as context:
        changed = context.first_changed_rule()
        if changed and subject.mode in (PARENT, BASELINE):
            detail = f"{changed} is not what it is in {subject.against[:12]}: the rules changed with it"
            return context.tell("not_confirmed", reason=Reason.OUTSIDE_WORKSPACE, detail=detail)
        return _duel(context, watch)


def measure(subject: ReviewTarget, open_judge: OpenJudge, watch: Watch) -> ReviewResult:
    """The commit against the other side by measurement alone: the cumulative speedup as it is now."""
    with _open_review(subject, open_judge) as context:
        gate = context.judge.gate(context.side, watch)
        if gate.reason:
            return context.tell("not_confirmed", kind=MEASURED, reason=gate.reason, detail=gate.detail)
        found = context.judge.compare(context.other_side, context.side, "cumulative", watch)
        return context.tell(_direction(found.speedup), kind=MEASURED, speedup=found.speedup)


@contextmanager
def _open_review(subject: ReviewTarget, open_judge: OpenJudge) -> Iterator[_ReviewContext]:
    with scratch() as place:
        trees = MaterialisedTrees(subject.repository, Disk(), place / "trees")
        case = Case(trees.case(_tree(subject, subject.commit, ""), subject.case_path))
        require_timing_device(case)
        workspace = f"{subject.case_path}/workspace"
        sides = [
            Side(tree=str(trees.workspace(_tree(subject, commit, "/workspace"), workspace)))
            for commit in (subject.commit, subject.against)
        ]
        with closing(open_judge(case.folder, place / "judge.log")) as judge:
            yield _ReviewContext(subject, case, judge, *sides)


@dataclass(frozen=True)
class _ReviewContext:
    """Who judges, and both sides as folders; the case is the one in the commit under review."""

    subject: ReviewTarget
    case: Case
    judge: Judge
    side: Side
    other_side: Side

    def first_changed_rule(self) -> str | None:
        """The first fixed file of the case that differs between the two commits."""
        repository, place = self.subject.repository, self.subject.case_path
        trees = (repository.resolve(f"{c}:{place}") for c in (self.subject.against, self.subject.commit))
        changes = repository.changes(*(tree or "" for tree in trees))
        return next((c.path for c in changes if not is_unscored(Path(c.path))), None)

    def tell(
        self,
        finding: ReviewFinding,
        *,
        kind: ReviewKind = DUEL,
        reason: Reason | None = None,
        detail: str = "",
        speedup: Interval | None = None,
        screened: float | None = None,
        estimate: Estimate | None = None,
    ) -> ReviewResult:
        subject, claim = self.subject, _claim(self.subject)
        provenance = self.judge.describe()
        n = subject.trailers.get("Candidate", "")
        return ReviewResult(
            case=subject.case_name,
            run=subject.trailers.get("Run", ""),
            n=int(n) if n.isascii() and n.isdecimal() else None,
            idea=subject.trailers.get("Idea", ""),
            commit=subject.commit,
            against=subject.against,
            kind=kind,
            finding=finding,
            reason=reason,
            detail=detail,
            claim=claim,
            speedup=speedup,
            screened=screened,
            estimate=estimate,
            agrees=_overlap(claim.speedup, speedup),
            same_device=_same_device(claim, provenance),
            provenance=provenance,
            notes=tuple(self._notes(provenance, claim)),
        )

    def _notes(self, provenance: Provenance, claim: Claim) -> Iterator[str]:
        yield from _changed_digests(self.subject.trailers, provenance)
        if _same_device(claim, provenance) is False:
            yield f"another device: judged then on {claim.device or 'an unnamed one'}, now on {provenance.device}"
        changed = self.first_changed_rule()
        if changed:
            yield f"{changed} differs between the two commits; that of {self.subject.commit[:12]} decides"
        repository = self.subject.repository
        here = repository.root / self.subject.case_path
        commit = self.subject.commit
        working = changed_fixed_file(repository, commit, self.case, here) if here.is_dir() else None
        if working:
            yield f"{working} is not what the commit has; the commit's decides"


def _tree(subject: ReviewTarget, commit: str, below: str) -> str:
    path = f"{subject.case_path}{below}"
    tree = subject.repository.resolve(f"{commit}:{path}")
    if tree is None:
        raise UsageError(f"{commit[:12]} has no {path}; review against another commit with --against")
    return tree


def _duel(context: _ReviewContext, watch: Watch) -> ReviewResult:
    sides = TrialSides(context.side, context.side, context.other_side, context.other_side)
    outcome = judge_sides(
        lambda question: question(context.judge), sides, lambda: context.case.settings.duel.alpha, watch
    )
    screening, found = outcome.screening, outcome.confirmation
    assert screening is not None
    if found is None:
        finding: ReviewFinding = "reversed" if screening.reason is Reason.SLOWER else "not_confirmed"
        return context.tell(
            finding,
            reason=screening.reason,
            detail=screening.detail,
            screened=screening.speedup,
            estimate=last_estimate(screening.speedup, None, None),
        )
    return context.tell(
        "confirmed" if found.reason is None else "not_confirmed",
        reason=found.reason,
        detail=found.detail,
        speedup=found.speedup,
        screened=screening.speedup,
        estimate=last_estimate(screening.speedup, found.decided, found.speedup or found.refuted),
    )


def _commit(repository: Repository, revision: str) -> str:
    commit = repository.resolve(f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(f"{revision!r} names no commit here; 'hillclimb history CASE' lists those of a run")
    return commit


def _other(repository: Repository, commit: str, against: str, trailers: Mapping[str, str]) -> str:
    if against == PARENT:
        parent = repository.resolve(f"{commit}^1^{{commit}}")
        if parent is None:
            raise UsageError(f"{commit[:12]} has no parent here; name the other side with --against")
        return parent
    if against == BASELINE:
        base = trailers.get("Base", "")
        if not base:
            raise UsageError(
                f"{commit[:12]} does not say where its run began; name the other side with --against"
            )
        return _commit(repository, base)
    return _commit(repository, against)


def _claim(subject: ReviewTarget) -> Claim:
    trailers = subject.trailers
    named = {PARENT: "Speedup", BASELINE: "Cumulative"}.get(subject.mode, "")
    return Claim(
        verdict=trailers.get("Verdict", ""),
        reason=trailers.get("Reason", ""),
        speedup=read_interval(trailers.get(named, "")),
        device=trailers.get("Device", ""),
        device_id=trailers.get("Device-Id", ""),
    )


def _same_device(claim: Claim, provenance: Provenance) -> bool | None:
    if not claim.device:
        return None
    return (claim.device, claim.device_id) == (provenance.device, provenance.device_id)


def _overlap(then: Interval | None, now: Interval | None) -> bool | None:
    return None if then is None or now is None else then.low <= now.high and now.low <= then.high


def _direction(speedup: Interval) -> ReviewFinding:
    if speedup.low > 1:
        return "confirmed"
    return "reversed" if speedup.high < 1 else "not_confirmed"


def _changed_digests(trailers: Mapping[str, str], provenance: Provenance) -> Iterator[str]:
    for name in ("contract", "benchmarks", "harness"):
        then, now = trailers.get(name.capitalize(), ""), getattr(provenance, name)
        if then and then != now:
            yield f"the {name} is not the one it was judged by (sha256 {then[:12]}, now {now[:12]})"
