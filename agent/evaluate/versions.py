"""The sides of a judgement as a person names them: a workspace by folder or revision, or a yardstick by its file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.evaluate.working_case import read_working_files, workspace_of
from hillclimb.agent.git.repository import REGULAR, Repository
from hillclimb.agent.git.snapshot import case_path
from hillclimb.agent.git.version import File, Version, read_folder, read_tree
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.yardstick import is_compiled
from hillclimb.harness.errors import UsageError

HEAD = "HEAD"

PYTHON = ".py"


@dataclass(frozen=True)
class Opponent:
    """What a candidate must beat."""

    version: Version
    committed: Version
    """The workspace from which the candidate may differ in what the case lets it change: the opponent itself, or HEAD's
    where that is a yardstick."""
    yardstick: str | None = None
    """SHA-256 of the file, of a yardstick."""


def find_opponent(case: Case, what: str) -> Opponent:
    """A workspace as read_version finds it, or the yardstick in a file of Python.

    Raises UsageError where there is neither, or the yardstick cannot be judged.
    """
    file, (entry, _) = Path(what), case.settings.entry.split(":")
    if file.suffix == PYTHON and file.is_file():
        version = _read_yardstick(case, file)
        return Opponent(version, _committed(case, file), hashlib.sha256(version[entry].content).hexdigest())
    version = read_version(case, what)
    if entry not in version:
        raise UsageError(f"{what}: has no {entry}, which {case.name} runs; name a version that has one")
    return Opponent(version, version)


def _committed(case: Case, yardstick: Path) -> Version:
    try:
        return read_version(case, HEAD)
    except UsageError as error:
        raise UsageError(
            f"{yardstick}: a kernel that meets a yardstick may differ from HEAD in what the case lets it, and "
            f"HEAD has no {case.name}; commit the case first"
        ) from error


def read_version(case: Case, what: str) -> Version:
    """A workspace by folder or by revision, as it is now; the case's own folder by git's rules."""
    folder = Path(what)
    if folder.resolve() in (case.folder, case.workspace):
        return workspace_of(read_working_files(case))
    if folder.is_dir():
        return read_folder(folder / "workspace" if (folder / "case.yaml").is_file() else folder)
    repository = Repository.open(case.folder)
    commit = repository.resolve(f"{what}^{{commit}}")
    if commit is None:
        raise UsageError(f"{what!r} is neither a folder nor a revision; name a path that exists, or a commit")
    place = f"{case_path(repository, case.folder)}/workspace"
    tree = repository.resolve(f"{commit}:{place}")
    if tree is None:
        raise UsageError(f"{what} has no {place}; commit the case, or name another version with --against")
    return read_tree(repository, tree, place)


def _read_yardstick(case: Case, file: Path) -> Version:
    """The yardstick as the module of the case's entry."""
    entry, function = case.settings.entry.split(":")
    if not entry.endswith(PYTHON):
        raise UsageError(f"{file}: a yardstick is Python, and {case.name} runs {entry}; name a folder")
    if file.resolve().is_relative_to(case.workspace.resolve()):
        raise UsageError(
            f"{file}: lies in the workspace, whose files may not call libraries; name one outside of it"
        )
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error}); make it readable") from None
    try:
        compiled = is_compiled(content)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file}: is no Python ({error}); mend it") from None
    if compiled:
        raise UsageError(
            f"{file}: does not say COMPILED = False, so it is for torch.compile, which `hillclimb study profile` does; "
            f"with that line, and {function} as it is to be called, it is judged"
        )
    return {entry: File(REGULAR, content)}
