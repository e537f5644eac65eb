"""What git would commit of files in the working tree, asked through a copy of the user's index.

Attributes, filters, file modes, sparse checkouts and unchanged files are git's business: `git update-index` decides.
Only objects are written; the user's index is read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hillclimb.agent.git.conversion import filter_of, filter_trouble
from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import EXECUTABLE, REGULAR, Repository, TreeEntry
from hillclimb.harness.errors import MachineError, UsageError

_UPDATE = (
    "update-index",
    "--add",
    "--remove",
    "--replace",
    "--ignore-skip-worktree-entries",
    "-z",
    "--stdin",
)


class IndexCopy:
    """A copy of the user's index below a folder of its own; entered with `copied_index`."""

    def __init__(self, repository: Repository, file: Path) -> None:
        self._repository = repository
        self._environment = {"GIT_INDEX_FILE": str(file), "GIT_LITERAL_PATHSPECS": "1"}
        self._listing: list[tuple[str, str, TreeEntry]] | None = None

    def conflicts(self) -> set[str]:
        """Files that a merge left unresolved, relative to the repository's root."""
        return {path for path, stage, _ in self._listed() if stage != "0"}

    def entries(self) -> dict[str, TreeEntry]:
        """Every file, relative to the repository's root, as the index has it."""
        return {path: entry for path, _, entry in self._listed()}

    def update(self, paths: Iterable[str]) -> None:
        """Take paths relative to the root from the working tree, as `git add` would; one that is gone is removed.

        A file that a sparse checkout leaves out stays as it is. Raises UsageError for what git cannot take, such as
        a file whose filter fails.
        """
        changed = self._changed(list(paths))
        if not changed:
            return
        for path in changed:
            if self._is_there(path) and (named := filter_of(self._repository, path)):
                self._require_filter(path, named)
        listing = "".join(f"{path}\0" for path in changed)
        try:
            self._repository.run(*_UPDATE, input=os.fsencode(listing), environment=self._environment)
            self._listing = None
        except GitFailed as error:
            raise UsageError(
                f"{self._repository.root}: git cannot take the case's files ({error}); "
                "mend what it names, or have git ignore that file"
            ) from None

    def _require_filter(self, path: str, named: str) -> None:
        """Raises UsageError where the filter of a file fails or is not set up, before anything of it is written."""
        if not any(self._repository.setting(f"filter.{named}.{way}") for way in ("clean", "process")):
            raise UsageError(
                f"{path}: git's filter for this file, {named!r}, is not set up here, so it would be committed as it "
                f"lies there; set up filter.{named}.clean, or take the file out of the case"
            )
        try:
            said = self._repository.run_with_messages("hash-object", "--", path)[1]
        except MachineError as error:
            said = f"error: {error}"
        if trouble := filter_trouble(said):
            raise UsageError(
                f"{path}: git's filter for this file failed ({trouble}); mend the filter, "
                "or take the file out of the case"
            )

    def _changed(self, paths: Sequence[str]) -> list[str]:
        """Those that do not lie in the working tree byte for byte as the index has them.

        Of such a file nothing changed, whatever a filter that is missing here would make of it.
        """
        entries = self.entries()
        files = [path for path in paths if path in entries and self._is_there(path)]
        try:
            hashes = self._repository.hash_files(self._file(path) for path in files)
            raw = {path: self._raw_entry(path, sha) for path, sha in zip(files, hashes, strict=True)}
        except (GitFailed, OSError):  # one went away meanwhile, or cannot be read: git says what of it
            raw = {}
        return [path for path in paths if path not in raw or entries[path] != raw[path]]

    def _raw_entry(self, path: str, sha: str) -> TreeEntry:
        executable = self._file(path).stat().st_mode & 0o100
        return TreeEntry(EXECUTABLE if executable else REGULAR, sha)

    def _is_there(self, path: str) -> bool:
        return self._file(path).is_file() and not self._file(path).is_symlink()

    def _file(self, path: str) -> Path:
        return self._repository.root / path

    def _listed(self) -> list[tuple[str, str, TreeEntry]]:
        """Path, stage and entry of everything in the index."""
        if self._listing is None:
            output = self._repository.run("ls-files", "--stage", "-z", environment=self._environment)
            lines = (line.partition("\t") for line in os.fsdecode(output).split("\0")[:-1])
            facts = ((path, *facts.split(" ")) for facts, _, path in lines)
            self._listing = [(path, stage, TreeEntry(mode, sha)) for path, mode, sha, stage in facts]
        return self._listing


@contextmanager
def copied_index(repository: Repository) -> Iterator[IndexCopy]:
    """A copy of the user's index, removed at the end."""
    file = repository.index_file
    with tempfile.TemporaryDirectory(prefix="hillclimb-index-") as folder:
        copy = Path(folder) / "index"
        if file.exists():
            shutil.copy2(file, copy)  # git tells by its time which files may have changed since
        yield IndexCopy(repository, copy)
