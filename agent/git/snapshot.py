"""The case as its files stand when a run begins: a git tree, and the commit that the run's branch starts from.

A case need not be committed. Its files are those below its folder that git tracks or does not ignore, `__pycache__` and
`.env` files aside, as `git add` would take them. Files that the user's ignore rules cover are not part of the case, so
that virtual environments, caches and secrets never become objects. One that the case cannot do without is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.git.edits import belongs
from hillclimb.agent.git.index import copied_index
from hillclimb.agent.git.repository import GITLINK, SYMLINK, Repository, Signature, TreeEntry
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError

_KINDS = {SYMLINK: "a symbolic link", GITLINK: "a submodule"}
_REMEDY = "which a case may not hold; put the files themselves there"


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
    """Write the case's working files as blobs, as git would; their paths are relative to the repository's root.

    A tracked file that a sparse checkout leaves out is one of them. Raises UsageError for what cannot be part of a
    case: links, submodules, unresolved conflicts, and files that git ignores though the case needs them.
    """
    prefix = case_path(repository, case.folder)
    visible = [name for name in repository.visible_files(prefix) if belongs(name)]
    names = [name for name in visible if not _is_folder(repository.root / name)]
    _require_plain_files(repository.root, names)
    _require_not_ignored(repository, case, {repository.root / name for name in names})
    return _take(repository, names)


def _take(repository: Repository, names: Sequence[str]) -> dict[str, TreeEntry]:
    """What git would commit of these files."""
    with copied_index(repository) as index:
        conflicts = sorted(index.conflicts() & set(names))
        if conflicts:
            raise UsageError(
                f"{conflicts[0]}: has an unresolved merge conflict; resolve it, then 'git add' it"
            )
        index.update(names)
        entries = index.entries()
    taken = {name: entries[name] for name in names if name in entries}
    for name, entry in taken.items():
        if entry.mode in (SYMLINK, GITLINK):
            raise UsageError(f"{repository.root / name}: git has it as {_KINDS[entry.mode]}, {_REMEDY}")
    return taken


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


def changed_fixed_file(repository: Repository, commit: str, snapshot: Case, folder: Path) -> str | None:
    """The first fixed file that the user's case has otherwise than a commit, by git's rules; None where all are equal.

    `snapshot` is the case out of that commit, `folder` the user's. Raises UsageError where git cannot take a file.
    """
    prefix = case_path(repository, folder)
    names = [f"{prefix}/{path.relative_to(snapshot.folder).as_posix()}" for path in snapshot.fixed_files()]
    committed, now = _committed(repository, commit, prefix), _take(repository, names)
    return next((str(repository.root / name) for name in names if now.get(name) != committed[name]), None)


def _committed(repository: Repository, head: str | None, prefix: str) -> dict[str, TreeEntry]:
    tree = repository.resolve(f"{head}:{prefix}") if head else None
    files = repository.list_files(tree) if tree else {}
    return {f"{prefix}/{path}": blob for path, blob in files.items() if belongs(path)}


def _is_folder(path: Path) -> bool:
    """Whether a folder took the place of a file; its own files are listed, too."""
    return path.is_dir() and not path.is_symlink() and not (path / ".git").exists()


def _require_plain_files(root: Path, names: Sequence[str]) -> None:
    for path in (root / name for name in names):
        if path.is_symlink():
            raise UsageError(f"{path}: is a symbolic link, {_REMEDY}")
        if (path / ".git").exists():
            raise UsageError(f"{path}: is a git repository of its own, {_REMEDY}")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is not a plain file; move it (a device, a socket) out of the case")
        if "\n" in str(path):
            raise UsageError(f"{str(path)!r}: has a line break in its name; rename it")


def _require_not_ignored(repository: Repository, case: Case, visible: set[Path]) -> None:
    """Raises UsageError for a file that the case needs or imports, and git ignores: no snapshot could hold it."""
    for path in (*case.required_files(), *_imported_files(visible, case)):
        if path not in visible:
            raise UsageError(
                f"{path}: git ignores this file ({repository.why_ignored(path) or 'by its rules'}), so no record could "
                "hold it; change that rule, or do without the file"
            )


def _imported_files(visible: set[Path], case: Case) -> Iterator[Path]:
    """Files of the case that its visible sources import, each from the folder that its imports are found in."""
    docs = case.workspace / "docs"
    for source in sorted(path for path in visible if path.suffix == ".py" and path.is_file()):
        if docs in source.parents:
            continue  # never run
        root = case.workspace if case.workspace in source.parents else case.folder
        for module in _imported_modules(source, root):
            files = (module.with_suffix(".py"), module / "__init__.py")
            yield from (path for path in files if path.is_file())


def _imported_modules(source: Path, root: Path) -> set[Path]:
    """Where every module that a source imports would lie, and what it imports from it: that may be a module, too."""
    try:
        nodes = list(ast.walk(ast.parse(source.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()  # whoever runs it says so
    found = {root.joinpath(*a.name.split(".")) for n in nodes if isinstance(n, ast.Import) for a in n.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            place = source.parents[node.level - 1] if 0 < node.level <= len(source.parents) else root
            module = place.joinpath(*node.module.split(".")) if node.module else place
            found |= {module, *(module / alias.name for alias in node.names if alias.name != "*")}
    return {path for path in found if path.name}
