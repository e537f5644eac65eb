"""A case's working files as a climb that began now would take them, so that both come to the same verdict."""

from __future__ import annotations

from pathlib import Path

from hillclimb.agent.git.failure import NoRepository
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.snapshot import case_path, store_case
from hillclimb.agent.git.version import Version, read_blobs, read_folder, write_files
from hillclimb.harness.case.case import Case

_WORKSPACE = "workspace/"


def read_working_files(case: Case) -> Version:
    """The files of a whole case by their paths in it, by git's own rules; outside a repository, as they lie there.

    Raises UsageError for what cannot be part of a case, such as an ignored file that it imports.
    """
    try:
        repository = Repository.open(case.folder)
    except NoRepository:
        return read_folder(case.folder)
    place = case_path(repository, case.folder)
    files = store_case(repository, case).items()
    return read_blobs(repository, {path.removeprefix(f"{place}/"): blob for path, blob in files}, place)


def workspace_of(files: Version) -> Version:
    """Of a whole case's files those of its workspace, by their paths there."""
    found = ((path, file) for path, file in files.items() if path.startswith(_WORKSPACE))
    return {path.removeprefix(_WORKSPACE): file for path, file in found}


def place_case(files: Version, name: str, folder: Path) -> Case:
    """The case of these files, written below a folder; `name` is `<family>/<case>`."""
    return Case(write_files(files, folder / name))
