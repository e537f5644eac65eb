"""Runs as any clone tells them: wins by their trailers, in every commit that HEAD or a ref reaches.

So they are found again after a merge and the deletion of the branch, after a squash, a cherry-pick or a rebase, and in
a bare repository. A win that a later commit reverts, of HEAD or of the run's own branch, is taken back; a revert of the
revert brings it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.trailers import CommittedWin, read_blocks, read_win

_REJECTED_REFS = "refs/hillclimb/*"
_NAMED = r"([0-9a-f]{7,64})(?: \(.*\))?"
"""A commit by its hash; `git revert --reference` adds its subject and date."""
_REVERT = re.compile(
    rf"^\s*This reverts commit {_NAMED}(?:, reversing\s+changes made to {_NAMED})?\.?\s*$",
    re.MULTILINE,
)
"""A line of its own: the subject of a win, which its author words, ends with a speedup."""
_REVERTED_SUBJECT = re.compile(r'Revert "(.+)"')

_WinKey = tuple[str, str, int]
"""Run, the commit that it started from, and candidate: two people may give their runs one name."""
_BranchTip = tuple[str, str, int]
"""Commit, ref, and when it was committed."""


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
    others: int = 0
    """Runs of the same name that started elsewhere, where they were counted."""


@dataclass(frozen=True)
class _CommitMessage:
    """A commit that may hold wins, or take some back; line ends as git itself writes them."""

    commit: str
    time: int
    text: str


def find_runs(repository: Repository, case: str) -> list[RecordedRun]:
    """The runs of a case that have a branch here, or wins in a commit that HEAD or a ref reaches; newest first."""
    branches = _find_branches(repository, case)
    own, wins = _find_wins(repository, case, [ref for _, ref, _ in branches.values()])
    found = []
    for tag in {**branches, **{tag: None for tag, _ in wins}}:
        groups = [group for (of, _), group in wins.items() if of == tag]
        on_it = [g for g in groups if tag in branches and any(win.commit in own for win in g)]
        its = max(on_it, key=lambda group: max(own.get(win.commit, -1) for win in group), default=[])
        if tag in branches:
            found.append(_recorded(case, tag, branches[tag], its))
        found += [_recorded(case, tag, None, group) for group in groups if group is not its]
    return sorted(found, key=lambda run: (-run.time, run.tag))


def is_shallow(repository: Repository) -> bool:
    """Whether commits are missing here that may hold more wins."""
    return repository.run("rev-parse", "--is-shallow-repository").strip() == b"true"


def _recorded(case: str, tag: str, branch: _BranchTip | None, wins: Sequence[CommittedWin]) -> RecordedRun:
    last = max(wins, key=lambda win: win.n, default=None)
    commit, ref, time = branch or (last.commit if last else "", "", last.time if last else 0)
    return RecordedRun(f"{case}/{tag}", tag, ref, commit, time, tuple(sorted(wins, key=lambda win: win.n)))


def _find_branches(repository: Repository, case: str) -> dict[str, _BranchTip]:
    """By their tags; local branches before remote-tracking ones of the same tag."""
    found: dict[str, _BranchTip] = {}
    form = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)"
    for pattern in (f"refs/heads/hillclimb/{case}/", f"refs/remotes/*/hillclimb/{case}/*"):
        for line in repository.run("for-each-ref", form, pattern).decode().splitlines():
            ref, commit, time = line.split("\0")
            found.setdefault(ref.rsplit("/", 1)[1], (commit, ref, int(time)))
    return found


def _find_wins(
    repository: Repository, case: str, branches: Sequence[str]
) -> tuple[dict[str, int], dict[tuple[str, str], list[CommittedWin]]]:
    """The commits that branches of runs reach, by their place from the oldest; and (tag, base) -> wins, each once.

    A win is taken from the run's own branch before HEAD, and before other refs.
    """
    everywhere = list(_messages(repository, case, [f"--exclude={_REJECTED_REFS}", "--all"]))
    by_commit = {message.commit: message for message in everywhere}
    reached = _messages(repository, case, branches) if branches else ()
    own = {message.commit: place for place, message in enumerate(reached)}
    head = _commits(repository, case, ["HEAD"]) if repository.resolve("HEAD^{commit}") else set()
    history = _History(repository, case, by_commit)
    states = {
        **history.states(by_commit, reverts=False),
        **history.states(commit for commit in by_commit if commit in own),
        **history.states(commit for commit in by_commit if commit in head),
    }
    found: dict[_WinKey, CommittedWin] = {}
    for chosen in (own, head, by_commit):
        for key, win in history.wins_of(commit for commit in by_commit if commit in chosen):
            found.setdefault(key, replace(win, is_taken_back=not states[key]))
    wins: dict[tuple[str, str], list[CommittedWin]] = {}
    for (run, base, _), win in found.items():
        wins.setdefault((run.rpartition("/")[2], base), []).append(win)
    return own, wins


@dataclass(frozen=True)
class _History:
    """Which wins commits hold, and which they take back."""

    repository: Repository
    case: str
    messages: Mapping[str, _CommitMessage]

    def wins_of(self, commits: Iterable[str]) -> Iterator[tuple[_WinKey, CommittedWin]]:
        """The wins that commits hold, in their order."""
        for commit in commits:
            message = self.messages[commit]
            for block in read_blocks(message.text):
                win = read_win(commit, message.time, block)
                if win and win.trailers.get("Run", "").rpartition("/")[0] == self.case:
                    yield (win.trailers["Run"], win.trailers.get("Base", ""), win.n), win

    def states(self, commits: Iterable[str], *, reverts: bool = True) -> dict[_WinKey, bool]:
        """Whether each win stands at the end of these commits, oldest first; without `reverts` all of them do."""
        stands: dict[_WinKey, bool] = {}
        before: dict[str, dict[_WinKey, bool]] = {}
        subjects: dict[str, str] = {}
        for commit in commits:
            changes = dict.fromkeys((key for key, _ in self.wins_of([commit])), True)
            for reverted in self._reverted_by(commit, subjects) if reverts else ():
                changes |= before.get(reverted) or dict.fromkeys(self._keys_of(reverted), False)
            before[commit] = {key: stands.get(key, False) for key in changes}
            stands |= changes
            subjects[self.messages[commit].text.partition("\n")[0]] = commit
        return stands

    def _reverted_by(self, commit: str, subjects: Mapping[str, str]) -> Iterator[str]:
        """The commits whose changes a commit takes back, the newest first; by their subjects where no hash leads on."""
        text = self.messages[commit].text
        is_found = False
        for target, mainline in _REVERT.findall(text):
            for reverted in self._brought_by(target, mainline):
                is_found = True
                yield reverted
        named = _REVERTED_SUBJECT.match(text)
        if named and not is_found and named[1] in subjects:
            yield subjects[named[1]]

    def _brought_by(self, target: str, mainline: str) -> list[str]:
        """The commit itself; of a merge, all that it brought, the newest first."""
        whole = self.repository.resolve(f"{target}^{{commit}}")
        if whole is None or not mainline:
            return [whole] if whole else []
        if not self.repository.resolve(f"{mainline}^{{commit}}"):
            return []
        merged = _commits(self.repository, self.case, [whole, f"^{mainline}"])
        return [one for one in reversed(list(self.messages)) if one in merged]

    def _keys_of(self, commit: str) -> list[_WinKey]:
        """The wins of a commit that need not be reachable: a rebase or a squash left it behind."""
        found = {
            message.commit: message
            for message in _messages(self.repository, self.case, ["--no-walk", commit])
        }
        return [key for key, _ in replace(self, messages=found).wins_of(found)]


def _commits(repository: Repository, case: str, revisions: Sequence[str]) -> set[str]:
    return {message.commit for message in _messages(repository, case, revisions)}


def _messages(repository: Repository, case: str, revisions: Sequence[str]) -> Iterator[_CommitMessage]:
    """Commits that name a run of the case, or revert something, oldest first."""
    named = (
        "--fixed-strings",
        f"--grep=Hillclimb-Run: {case}/",
        "--grep=This reverts commit ",
        '--grep=Revert "',
    )
    form = "--format=%ct%n%B%x00"
    output = repository.run(
        "rev-list", "--ignore-missing", "--topo-order", "--reverse", *named, form, *revisions
    )
    for entry in output.decode(errors="replace").split("\0\n")[:-1]:
        heading, time, text = entry.split("\n", 2)
        yield _CommitMessage(heading.removeprefix("commit "), int(time), text.replace("\r\n", "\n"))
