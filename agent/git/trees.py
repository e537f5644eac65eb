"""Candidates, incumbents and the case as folders that a judge can read, written out of git trees.

A folder is named after its tree, appears whole or not at all, and is never changed afterwards. Nothing of it is flushed
to the disk, since no session trusts a folder that another one made: it is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from hillclimb.agent.git.conversion import check_out
from hillclimb.agent.git.edits import belongs
from hillclimb.agent.git.repository import EXECUTABLE, REGULAR, Repository
from hillclimb.agent.machine.disk import Disk
from hillclimb.harness.errors import UsageError


def is_judged(path: str) -> bool:
    """Whether a file of a workspace, named relative to it, is part of what is judged: docs/ is for readers alone.

    The climb writes its notes there after a verdict; since no candidate process ever sees them, the tree that is
    committed behaves as the one that was judged.
    """
    return not path.startswith("docs/")


class MaterialisedTrees:
    """The materialised trees of one run, below `folder`."""

    def __init__(self, repository: Repository, disk: Disk, folder: Path) -> None:
        self._repository, self._disk, self.folder = repository, disk, folder.resolve()
        self._made: set[Path] = set()

    def workspace(self, tree: str, place: str) -> Path:
        """A workspace's files but docs/; `tree` is the git tree of the workspace folder, `place` its path in git."""
        return self._materialise(tree, place, self.folder / tree, is_judged)

    def case(self, tree: str, place: str) -> Path:
        """A whole case's files, in a folder whose last two parts are its name; `place` is its path in git."""
        name = Path(*place.split("/")[-2:])
        return self._materialise(tree, place, self.folder / f"case-{tree}" / name, lambda path: True)

    def keep_only(self, kept: Collection[Path]) -> None:
        """Remove every folder that is not needed any more, and what a crash left half written."""
        if not self.folder.is_dir():
            return
        needed = {path.relative_to(self.folder).parts[0] for path in kept}
        for path in sorted(self.folder.iterdir()):
            if path.name not in needed:
                self._made = {made for made in self._made if path not in (made, *made.parents)}
                self._disk.remove_folder(path)

    def _materialise(self, tree: str, place: str, folder: Path, is_wanted: Callable[[str], bool]) -> Path:
        if folder in self._made and folder.is_dir():
            return folder
        files = self._repository.list_files(tree).items()
        listing = {path: blob for path, blob in files if belongs(path) and is_wanted(path)}
        beside = folder.with_name(f".{folder.name}.new")
        self._disk.remove_folder(folder)
        self._disk.remove_folder(beside)
        self._disk.make_folder(beside)
        for path, blob in listing.items():
            if blob.mode not in (REGULAR, EXECUTABLE):
                raise UsageError(f"{path}: is a link or a submodule in the commit, which a case may not hold")
        contents = check_out(
            self._repository, {f"{place}/{path}": blob.sha for path, blob in listing.items()}
        )
        for (path, blob), content in zip(listing.items(), contents, strict=True):
            target = beside / path
            self._disk.make_folder(target.parent)
            self._disk.create(target, content, 0o555 if blob.mode == EXECUTABLE else 0o444)
        self._disk.place(beside, folder)
        self._made.add(folder)
        return folder
