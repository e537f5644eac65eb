"""The case as its files stand when a run begins: a git tree, and the commit that the run's branch starts from.

A case need not be committed. What counts as its files: those on disk below the case folder that git tracks or
does not ignore, read raw, `__pycache__` and `.env` files aside. Files that the user's ignore rules cover are not part
of the case, so that virtual environments, caches and secrets never become objects; a fixed file that is ignored is an
error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.git.edits import may_hold_secrets
from hillclimb.agent.git.repository import EXECUTABLE, REGULAR, Repository, Signature, TreeEntry
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError


@dataclass(frozen=True)
class BaseCommit:
    """Where a run's branch starts."""

    commit: str
    is_snapshot: bool
    """Whether the commit was made for the run, because the case's files were not committed as they are."""


def case_path(repository: Repository, folder: Path) -> str:
    """The case folder relative to the repository's root. Raises UsageError unless it is two folders below it."""
    folder = folder.resolve()
    if folder == repository.root or repository.root not in folder.parents:
        raise UsageError(
            f"{folder}: a case must be a folder below the repository's root {repository.root}; move it"
        )
    path = folder.relative_to(repository.root)
    if len(path.parts) < 2:
        raise UsageError(
            f"{folder}: a case has two folders below the repository's root {repository.root}, <family>/<case>, "
            "and its records are named after both; move it to cases/<family>/<case>"
        )
    return path.as_posix()


def case_name(repository: Repository, folder: Path) -> str:
    """`<family>/<case>`. Raises UsageError as case_path does."""
    return "/".join(case_path(repository, folder).split("/")[-2:])


def store_case(repository: Repository, case: Case) -> dict[str, TreeEntry]:
    """Write the case's working files as blobs; their paths are relative to the repository's root.

    Raises UsageError for what cannot be part of a case: links, submodules, fixed files that git ignores.
    """
    prefix = case_path(repository, case.folder)
    names = [name for name in repository.visible_files(prefix) if _belongs(name)]
    files = [repository.root / name for name in names]
    present = [
        (name, path) for name, path in zip(names, files, strict=True) if path.is_symlink() or path.exists()
    ]
    _require_plain_files([path for _, path in present])
    _require_not_ignored(case, {path for _, path in present})
    shas = repository.store_files([path for _, path in present])
    return {name: TreeEntry(_mode(path), sha) for (name, path), sha in zip(present, shas, strict=True)}


def find_base(repository: Repository, case: Case, files: dict[str, TreeEntry], when: Signature) -> BaseCommit:
    """HEAD if the case is committed there just so, else a commit on top of it that makes it so.

    Works in a repository without commits, too. No ref moves.
    """
    prefix = case_path(repository, case.folder)
    head = repository.resolve("HEAD^{commit}")
    before = _committed(repository, head, prefix)
    if head and before == files:
        return BaseCommit(head, is_snapshot=False)
    gone: dict[str, TreeEntry | None] = {path: None for path in before if path not in files}
    tree = repository.update_tree(repository.object_at(head, "") if head else None, gone | files)
    message = f"Snapshot of {case.name} as a climb began\n\nIts files were not committed as they stood.\n"
    return BaseCommit(repository.commit(tree, [head] if head else [], message, when, when), is_snapshot=True)


def changed_fixed_file(snapshot: Case, folder: Path) -> str | None:
    """The first fixed file that the user's case has otherwise than the run's snapshot; None where all are equal."""
    for path in snapshot.fixed_files():
        name = path.relative_to(snapshot.folder)
        theirs = folder / name
        if not theirs.is_file() or theirs.read_bytes() != path.read_bytes():
            return str(theirs)
    return None


def _committed(repository: Repository, head: str | None, prefix: str) -> dict[str, TreeEntry]:
    tree = repository.resolve(f"{head}:{prefix}") if head else None
    return {f"{prefix}/{path}": blob for path, blob in repository.list_files(tree).items()} if tree else {}


def _belongs(name: str) -> bool:
    """Caches and files for keys are no part of a case, whatever git tracks or ignores."""
    *folders, file = name.split("/")
    return "__pycache__" not in folders and not may_hold_secrets(file)


def _mode(path: Path) -> str:
    return EXECUTABLE if path.stat().st_mode & 0o100 else REGULAR


def _require_plain_files(paths: list[Path]) -> None:
    for path in paths:
        if path.is_symlink():
            raise UsageError(
                f"{path}: is a symbolic link, which a case may not hold; put the file itself there"
            )
        if not path.is_file():
            raise UsageError(
                f"{path}: is not a plain file; move it (a submodule, a device, a socket) out of the case"
            )
        if "\n" in str(path):
            raise UsageError(f"{str(path)!r}: has a line break in its name; rename it")


def _require_not_ignored(case: Case, present: set[Path]) -> None:
    for path in case.required_files():
        if path not in present:
            raise UsageError(f"{path}: git ignores this file, so no record could hold it; change .gitignore")
