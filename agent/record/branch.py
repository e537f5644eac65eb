"""The run's refs: a branch of wins, and a ref for every rejected candidate."""

from __future__ import annotations

from pathlib import Path

from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import Repository, Signature
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.ledger import Candidate
from hillclimb.harness.errors import UsageError

COMMITTER = "hillclimb"


def signature(author: str, time: float) -> Signature:
    """Who a commit of the lab's is by, and when: from the ledger alone, so that its hash repeats."""
    name = COMMITTER if author == COMMITTER else f"{COMMITTER} {author}"
    return Signature(name, f"{author}@hillclimb.invalid", int(time))


def author_signature(proposal: Proposal, time: float) -> Signature:
    """Of a person's own edit their identity, else of the kind of proposer."""
    name, opened, address = proposal.identity.rstrip(">").rpartition(" <")
    return Signature(name, address, int(time)) if opened else signature(proposal.author, time)


class Branch:
    """The refs of one run; its short name is `hillclimb/<family>/<case>/<tag>`."""

    def __init__(self, repository: Repository, case: str, tag: str) -> None:
        self._repository = repository
        self.name = f"hillclimb/{case}/{tag}"
        self.ref = f"refs/heads/{self.name}"

    def rejected_ref(self, n: int) -> str:
        return f"refs/{self.name}/rejected/{n}"

    def tip(self) -> str | None:
        """The commit the branch stands at; None where there is no branch."""
        return self._repository.resolve(self.ref)

    def start(self, base: str) -> None:
        """Make the branch at `base`; one that is there already is fine. Raises UsageError where git refuses."""
        if self.tip() == base:
            return
        self._move(self.ref, base, None)

    def apply_verdict(self, candidate: Candidate) -> None:
        """Make the ref that the candidate's verdict names point at its commit; done already is fine.

        Raises UsageError if something else moved the ref meanwhile, or has the branch checked out.
        """
        judged = candidate.judged
        if judged is None or judged.ref is None or judged.commit is None:
            return
        if judged.kept:
            self.require_not_checked_out()
        if self._repository.resolve(judged.ref) != judged.commit:
            self._move(judged.ref, judged.commit, judged.parent if judged.kept else None)

    def require_no_conflict(self) -> None:
        """Raises UsageError where a branch has a name above or below this one: git cannot hold both."""
        parts = self.ref.split("/")
        above = ["/".join(parts[:count]) for count in range(3, len(parts))]
        below = self._repository.refs(f"{self.ref}/")
        for ref in (*(ref for ref in above if self._repository.resolve(ref)), *below):
            name = ref.removeprefix("refs/heads/")
            raise UsageError(
                f"branch {name} is in the way of branch {self.name}: git cannot hold both; "
                f"rename it with 'git branch -m {name} NEW-NAME'"
            )

    def require_at(self, commit: str) -> None:
        """Raises UsageError unless the branch stands where the ledger says."""
        tip = self.tip()
        if tip != commit:
            raise UsageError(
                f"branch {self.name} is at {tip or 'nothing'} and the ledger says {commit}: something else moved it; "
                f"put it back with 'git update-ref {self.ref} {commit}', or start a new run with --tag"
            )

    def require_not_checked_out(self) -> None:
        """Raises UsageError where a working tree has the branch checked out: moving it would change that tree."""
        folder = self._repository.checked_out_at(self.ref)
        if folder:
            raise UsageError(
                f"branch {self.name} is checked out at {folder}, and a climb never changes a checkout; "
                f"run 'git -C {folder} checkout --detach' (the files stay as they are), then climb again"
            )

    def stale_locks(self) -> list[Path]:
        """Lock files of this run's refs. Whoever holds the run's lock may remove them: nobody else writes there."""
        common = self._repository.common_dir
        branch = common / f"{self.ref}.lock"
        folder = common / f"refs/{self.name}/rejected"
        return [path for path in (branch, *sorted(folder.glob("*.lock"))) if path.exists()]

    def _move(self, ref: str, new: str, old: str | None) -> None:
        try:
            self._repository.update_ref(ref, new, old)
        except GitFailed as error:
            if self._repository.resolve(ref) == new:
                return  # a git left over from a killed session got there first
            raise UsageError(
                f"{ref} cannot be moved to {new} ({error}): something else uses or moved that ref; "
                f"put it back at {old or 'nothing'}, or start a new run with --tag"
            ) from None
