"""From a proposal to a candidate: the incumbent's tree with the proposal in it, as git objects and as folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.agent.climb.unchanged import why_unchanged
from hillclimb.agent.git.conversion import check_in, check_out
from hillclimb.agent.git.edits import why_changed_outside, why_forbidden, why_inapplicable
from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import REGULAR, Repository, TreeEntry
from hillclimb.agent.git.trees import MaterialisedTrees, is_judged
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.harness.errors import CandidateFault, CaseError, UsageError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    Knobs,
    KnobValue,
    broken_constraint,
    contains,
    defaults,
    load_knobs,
    replace_defaults,
    to_environment,
)
from hillclimb.harness.records import Reason, Side


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate that may be run."""

    tree: str
    """Git tree of the whole repository, the source defaults already those that the proposal's knobs ask for."""
    screened: Side
    """As it is first tried: the edits in the tree, the knobs in the environment."""
    confirmed: Side
    """As it would be committed: no environment."""


@dataclass(frozen=True)
class CandidateBuilder:
    """Builds the candidates of one run."""

    repository: Repository
    trees: MaterialisedTrees
    case_path: str
    mutable: tuple[str, ...]
    entry: str | None = "kernel.py"
    """The file that is run; None where a command may run any."""
    _incumbent_files: dict[str, Mapping[str, bytes]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The files of the incumbent that was asked about last."""
    _declared: dict[str, Knobs] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The knobs of the tree that was built upon last; a sweep builds upon it again and again."""

    def side(self, commit: str) -> Side:
        """A commit of the run's branch, ready to be judged as it is."""
        return self._side(commit)

    def texts(self, commit: str) -> Mapping[str, str]:
        """The text files of a commit's workspace by their paths; what is not UTF-8 is left out."""
        found = self._contents(commit).items()
        return {path: text for path, content in found if (text := _decode(content)) is not None}

    def why_unchanged(self, built: BuiltCandidate, incumbent: str) -> str:
        """Why the candidate cannot run otherwise than its incumbent; empty where it may."""
        if incumbent not in self._incumbent_files:
            self._incumbent_files.clear()
            self._incumbent_files[incumbent] = self._contents(incumbent)
        return why_unchanged(self._incumbent_files[incumbent], self._contents(built.tree), self.entry)

    def _contents(self, treeish: str) -> Mapping[str, bytes]:
        """The files of a commit's or a tree's workspace."""
        blobs = self.repository.list_files(f"{treeish}:{self._workspace}")
        return dict(zip(blobs, self._read(blobs), strict=True))

    def _read(self, blobs: Mapping[str, TreeEntry]) -> list[bytes]:
        return check_out(
            self.repository, {f"{self._workspace}/{path}": blob.sha for path, blob in blobs.items()}
        )

    def build(self, proposal: Proposal, incumbent: str) -> BuiltCandidate:
        """The incumbent plus the proposal. Raises CandidateFault where policy or good sense forbids it."""
        edited = self._edit(proposal.edits, incumbent)
        knobs = self._knobs(edited, proposal.knobs)
        tree = self._promote(edited, knobs, proposal.knobs) if proposal.knobs else edited
        if tree == self._tree(incumbent):
            raise CandidateFault(Reason.DOES_NOT_APPLY, "it changes nothing")
        self._vet(incumbent, tree, bool(proposal.knobs))
        return BuiltCandidate(tree, self._side(edited, to_environment(proposal.knobs)), self._side(tree))

    def annotate(self, tree: str, edits: tuple[Edit, ...]) -> str:
        """The tree with files below docs/ replaced, as far as the case lets anyone change them."""
        existing = self.repository.list_files(f"{tree}:{self._workspace}")
        allowed = [
            edit
            for edit in edits
            if not is_judged(edit.path) and why_forbidden([edit], self.mutable, existing) is None
        ]
        changes = {f"{self._workspace}/{edit.path}": self._blob(edit, existing) for edit in allowed}
        return self.repository.update_tree(tree, changes) if changes else tree

    def _edit(self, edits: tuple[Edit, ...], incumbent: str) -> str:
        existing = self.repository.list_files(f"{incumbent}:{self._workspace}")
        forbidden = why_forbidden(edits, self.mutable, existing)
        if forbidden:
            raise CandidateFault(Reason.OUTSIDE_WORKSPACE, forbidden)
        inapplicable = why_inapplicable(edits, existing)
        if inapplicable:
            raise CandidateFault(Reason.DOES_NOT_APPLY, inapplicable)
        changes = {f"{self._workspace}/{edit.path}": self._blob(edit, existing) for edit in edits}
        tree = self._tree(incumbent)
        return self.repository.update_tree(tree, changes) if changes else tree

    def _blob(self, edit: Edit, existing: Mapping[str, TreeEntry]) -> TreeEntry | None:
        if edit.content is None:
            return None
        before = existing.get(edit.path)
        return TreeEntry(before.mode if before else REGULAR, self._store(edit.path, edit.content, before))

    def _store(self, path: str, text: str, before: TreeEntry | None) -> str:
        try:
            return check_in(
                self.repository, f"{self._workspace}/{path}", text.encode(), before.sha if before else None
            )
        except GitFailed as error:
            raise CandidateFault(Reason.DOES_NOT_APPLY, f"git cannot take {path}: {error}") from None

    def _knobs(self, edited: str, wanted: Mapping[str, KnobValue]) -> Knobs:
        """The knobs that the edited tree declares, checked against the values asked for."""
        if edited not in self._declared:
            self._declared.clear()
            self._declared[edited] = self._load_knobs(edited)
        knobs = self._declared[edited]
        for name, value in wanted.items():
            if name not in knobs:
                raise CandidateFault(
                    Reason.BAD_KNOBS, f"there is no knob {name}; there are {', '.join(knobs) or 'none'}"
                )
            if not contains(knobs[name], value):
                raise CandidateFault(Reason.BAD_KNOBS, f"{name} has no value {value!r} in its domain")
        if trouble := broken_constraint(knobs, wanted):
            raise CandidateFault(Reason.BAD_KNOBS, trouble)
        return knobs

    def _load_knobs(self, tree: str) -> Knobs:
        try:
            return load_knobs(self._folder(tree) / KNOBS_FILE)
        except CaseError as error:
            raise CandidateFault(Reason.BAD_KNOBS, f"{KNOBS_FILE}: {error.key}: {error.problem}") from None

    def _promote(self, edited: str, knobs: Knobs, wanted: Mapping[str, KnobValue]) -> str:
        """The edited tree with the wanted knob values as its source defaults."""
        path = f"{self._workspace}/{KNOBS_FILE}"
        blob = self.repository.list_files(f"{edited}:{self._workspace}")[KNOBS_FILE]
        text = replace_defaults(self._read({KNOBS_FILE: blob})[0].decode(), wanted)
        changed = TreeEntry(blob.mode, self._store(KNOBS_FILE, text, blob))
        tree = self.repository.update_tree(edited, {path: changed})
        if defaults(self._load_knobs(tree)) != defaults(knobs) | dict(wanted):
            raise CandidateFault(
                Reason.BAD_KNOBS, f"{KNOBS_FILE} is written so that its defaults cannot be replaced"
            )
        return tree

    def _vet(self, incumbent: str, tree: str, promotes: bool) -> None:
        """Whatever way the tree was made, only what may differ from the incumbent does."""
        mutable = (*self.mutable, KNOBS_FILE) if promotes else self.mutable
        existing = self.repository.list_files(f"{incumbent}:{self._workspace}")
        changes = self.repository.changes(self._tree(incumbent), tree)
        forbidden = why_changed_outside(changes, self._workspace, mutable, existing)
        if forbidden:
            raise CandidateFault(Reason.OUTSIDE_WORKSPACE, forbidden)

    @property
    def _workspace(self) -> str:
        return f"{self.case_path}/workspace"

    def _side(self, treeish: str, knobs: Mapping[str, str] | None = None) -> Side:
        return Side(tree=str(self._folder(treeish)), knobs=dict(knobs or {}))

    def _folder(self, treeish: str) -> Path:
        tree = self.repository.object_at(treeish, self._workspace)
        if tree is None:
            raise CandidateFault(Reason.DOES_NOT_APPLY, "it leaves no file in the workspace")
        return self.trees.workspace(tree, self._workspace)

    def _tree(self, commit: str) -> str:
        """The whole tree of a commit."""
        tree = self.repository.object_at(commit, "")
        if tree is None:
            raise UsageError(
                f"commit {commit} is gone from the repository; fetch it again, or start a new --tag"
            )
        return tree


def _decode(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
