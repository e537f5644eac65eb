"""Runs as any clone tells them: wins by their trailers, in every commit that HEAD or a ref reaches.

So they are found again after a merge and the deletion of the branch, after a squash, a cherry-pick or a rebase, and in
a bare repository. A win that a later commit reverts is taken back, as far as HEAD has it; a revert of the revert
brings it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.trailers import CommittedWin, read_blocks, read_win

_REJECTED_REFS = "refs/hillclimb/*"
_REVERT = re.compile(
    r"^\s*This reverts commit ([0-9a-f]{7,64})(?:, reversing\s+changes made to ([0-9a-f]{7,64}))?",
    re.MULTILINE,
)

_Key = tuple[str, int]
"""Run and candidate."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as its branch and the trailers of its wins tell it."""

    run: str
    """`<family>/<case>/<tag>`."""
    tag: str
    ref: str
    """Its branch, a local one before a remote-tracking one; empty where there is none any more."""
    commit: str
    """That the branch stands at, or its last win where there is no branch."""
    time: int
    """When its last win was committed, seconds since the epoch."""
    wins: tuple[CommittedWin, ...]
    """Oldest first; those that were taken back among them."""


@dataclass(frozen=True)
class _Message:
    """A commit that may hold wins, or take some back."""

    commit: str
    time: int
    text: str


def find_runs(repository: Repository, case: str) -> list[RecordedRun]:
    """The runs of a case that have a branch here, or wins in a commit that HEAD or a ref reaches; newest first."""
    branches = _find_branches(repository, case)
    wins = _find_wins(repository, case, [ref for _, ref, _ in branches.values()])
    found = [_recorded(case, tag, branches.get(tag), wins.get(tag, [])) for tag in {**branches, **wins}]
    return sorted(found, key=lambda run: (-run.time, run.tag))


def is_shallow(repository: Repository) -> bool:
    """Whether commits are missing here that may hold more wins."""
    return repository.run("rev-parse", "--is-shallow-repository").strip() == b"true"


def _recorded(
    case: str, tag: str, branch: tuple[str, str, int] | None, wins: Sequence[CommittedWin]
) -> RecordedRun:
    last = max(wins, key=lambda win: win.n, default=None)
    commit, ref, time = branch or (last.commit if last else "", "", last.time if last else 0)
    return RecordedRun(f"{case}/{tag}", tag, ref, commit, time, tuple(sorted(wins, key=lambda win: win.n)))


def _find_branches(repository: Repository, case: str) -> dict[str, tuple[str, str, int]]:
    """tag -> commit, ref, time; local branches before remote-tracking ones of the same tag."""
    found: dict[str, tuple[str, str, int]] = {}
    form = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)"
    for pattern in (f"refs/heads/hillclimb/{case}/", f"refs/remotes/*/hillclimb/{case}/*"):
        for line in repository.run("for-each-ref", form, pattern).decode().splitlines():
            ref, commit, time = line.split("\0")
            found.setdefault(ref.rsplit("/", 1)[1], (commit, ref, int(time)))
    return found


def _find_wins(repository: Repository, case: str, branches: Sequence[str]) -> dict[str, list[CommittedWin]]:
    """tag -> wins, each once, from the run's own branch before HEAD and before other refs."""
    everywhere = list(_messages(repository, case, [f"--exclude={_REJECTED_REFS}", "--all"]))
    by_commit = {message.commit: message for message in everywhere}
    own = _commits(repository, case, branches) if branches else set()
    head = _commits(repository, case, ["HEAD"]) if repository.resolve("HEAD^{commit}") else set()
    history = _History(repository, case, by_commit)
    in_head = history.states(commit for commit in by_commit if commit in head)
    states = {**history.states(by_commit), **in_head}
    found: dict[_Key, CommittedWin] = {}
    for chosen in (own, head, by_commit):
        for key, win in history.wins_of(commit for commit in by_commit if commit in chosen):
            found.setdefault(key, replace(win, is_taken_back=not states[key]))
    wins: dict[str, list[CommittedWin]] = {}
    for (run, _), win in found.items():
        wins.setdefault(run.rpartition("/")[2], []).append(win)
    return wins


@dataclass(frozen=True)
class _History:
    """Which wins commits hold, and which they take back."""

    repository: Repository
    case: str
    messages: Mapping[str, _Message]

    def wins_of(self, commits: Iterable[str]) -> Iterator[tuple[_Key, CommittedWin]]:
        """The wins that commits hold, in their order."""
        for commit in commits:
            message = self.messages[commit]
            for block in read_blocks(message.text):
                win = read_win(commit, message.time, block)
                if win and win.trailers.get("Run", "").rpartition("/")[0] == self.case:
                    yield (win.trailers["Run"], win.n), win

    def states(self, commits: Iterable[str]) -> dict[_Key, bool]:
        """Whether each win stands at the end of these commits, oldest first."""
        effects: dict[str, dict[_Key, bool]] = {}
        for commit in commits:
            effects[commit] = dict.fromkeys((key for key, _ in self.wins_of([commit])), True)
            for target, mainline in _REVERT.findall(self.messages[commit].text):
                for reverted in self._reverted(target, mainline):
                    undone = effects.get(reverted, {})
                    effects[commit] |= {key: not stands for key, stands in undone.items()}
        return {key: stands for effect in effects.values() for key, stands in effect.items()}

    def _reverted(self, target: str, mainline: str) -> list[str]:
        """The commits whose changes a revert takes back: of a merge, all that it brought."""
        whole = self.repository.resolve(f"{target}^{{commit}}")
        if whole is None or not mainline:
            return [whole] if whole else []
        if not self.repository.resolve(f"{mainline}^{{commit}}"):
            return []
        merged = _commits(self.repository, self.case, [whole, f"^{mainline}"])
        return [one for one in self.messages if one in merged]


def _commits(repository: Repository, case: str, revisions: Sequence[str]) -> set[str]:
    return {message.commit for message in _messages(repository, case, revisions)}


def _messages(repository: Repository, case: str, revisions: Sequence[str]) -> Iterator[_Message]:
    """Commits that name a run of the case, or revert something, oldest first."""
    named = ("--fixed-strings", f"--grep=Hillclimb-Run: {case}/", "--grep=This reverts commit ")
    form = "--format=%ct%n%B%x00"
    output = repository.run("rev-list", "--topo-order", "--reverse", *named, form, *revisions)
    for entry in output.decode(errors="replace").split("\0\n")[:-1]:
        heading, time, text = entry.split("\n", 2)
        yield _Message(heading.removeprefix("commit "), int(time), text)
