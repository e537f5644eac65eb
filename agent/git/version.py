"""A version of a workspace for a judgement outside a run: its files, out of a folder or a commit, held in memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.git.conversion import check_out
from hillclimb.agent.git.edits import belongs, why_changed_outside
from hillclimb.agent.git.repository import (
    ABSENT,
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    Change,
    Repository,
    TreeEntry,
)
from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.machine.disk import Disk
from hillclimb.harness.errors import CaseError, UsageError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, KnobValue, defaults, parse_knobs, replace_defaults
from hillclimb.harness.wording import count

_WORKSPACE = "workspace"

MAX_FILES, MAX_BYTES = 5000, 256 << 20
"""Most files of a workspace and most bytes of all of them; they are held in memory."""


@dataclass(frozen=True)
class File:
    """One file: git's mode, and its bytes (a link's target)."""

    mode: str
    content: bytes


Version = Mapping[str, File]
"""Files by their paths relative to workspace/; `__pycache__` and files for keys (`.env`) aside."""


def read_folder(folder: Path) -> Version:
    """The files below a folder as they stand. Raises UsageError for what cannot be read, is no file or too much."""
    try:
        found = (path for path in folder.rglob("*") if belongs(path.as_posix()))
        paths = sorted(path for path in found if path.is_symlink() or not path.is_dir())
        _require_few(folder, len(paths), sum(path.lstat().st_size for path in paths))
        return {path.relative_to(folder).as_posix(): _read_file(path) for path in paths}
    except OSError as error:
        raise UsageError(f"{folder}: cannot be read ({error}); make its files readable") from None


def _require_few(folder: Path, files: int, size: int) -> None:
    """Raises UsageError before anything is read."""
    if files > MAX_FILES or size > MAX_BYTES:
        raise UsageError(
            f"{folder}: has {count(files, 'file')} of {count(size, 'byte')}; "
            f"a workspace has at most {MAX_FILES} files of {MAX_BYTES} bytes: name the folder of the kernel alone"
        )


def read_tree(repository: Repository, tree: str, place: str) -> Version:
    """The files of a git tree as they would lie in the working tree; `place` is its path in git."""
    return read_blobs(repository, repository.list_files(tree), place)


def read_blobs(repository: Repository, blobs: Mapping[str, TreeEntry], place: str) -> Version:
    """Files by their paths relative to `place`, a folder in git, as they would lie in the working tree."""
    files = {path: blob for path, blob in blobs.items() if belongs(path)}
    plain = {path: blob.sha for path, blob in files.items() if blob.mode in (REGULAR, EXECUTABLE)}
    linked = [path for path, blob in files.items() if blob.mode == SYMLINK]
    contents = dict(zip(linked, repository.read([files[path].sha for path in linked]), strict=True))
    found = check_out(repository, {f"{place}/{path}": sha for path, sha in plain.items()})
    contents |= dict(zip(plain, found, strict=True))
    return {path: File(blob.mode, contents.get(path, b"")) for path, blob in files.items()}


def write_version(version: Version, folder: Path) -> Path:
    """Put the files but docs/ into a new folder, read-only, and return it.

    Raises UsageError for links, StorageError where the disk refuses.
    """
    return write_files({path: file for path, file in version.items() if is_judged(path)}, folder)


def write_files(version: Version, folder: Path) -> Path:
    """Put files into a new folder, read-only, and return it. Raises as write_version does."""
    disk = Disk()
    disk.make_folder(folder)
    for path, file in version.items():
        if file.mode not in (REGULAR, EXECUTABLE):
            raise UsageError(
                f"{path}: is a link or a submodule, which a workspace may not hold; put a file there"
            )
        target = folder / path
        disk.make_folder(target.parent)
        disk.create(target, file.content, 0o555 if file.mode == EXECUTABLE else 0o444)
    return folder


def why_not_allowed(candidate: Version, against: Version, mutable: tuple[str, ...]) -> str | None:
    """What the candidate changes beyond the mutable globs, as a sentence; None if nothing.

    The defaults of knobs.yaml may differ whatever the globs say: that is how a climb commits knob values.
    """
    allowed = mutable
    if KNOBS_FILE not in mutable and changed_defaults(candidate, against) is not None:
        allowed = (*mutable, KNOBS_FILE)
    return why_changed_outside(_changes(against, candidate), _WORKSPACE, allowed, against)


def _changes(old: Version, new: Version) -> list[Change]:
    return [
        Change(f"{_WORKSPACE}/{path}", _mode(old.get(path)), _mode(new.get(path)))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]


def _mode(file: File | None) -> str:
    return file.mode if file else ABSENT


def changed_defaults(version: Version, against: Version) -> dict[str, KnobValue] | None:
    """The knobs whose defaults differ; None where knobs.yaml differs in anything but values of defaults."""
    new, old = version.get(KNOBS_FILE), against.get(KNOBS_FILE)
    if new is None or old is None or new.mode != old.mode:
        return None
    try:
        after, before = new.content.decode(), old.content.decode()
        wanted, was = (defaults(parse_knobs(text, Path(KNOBS_FILE))) for text in (after, before))
    except (UnicodeDecodeError, CaseError):
        return None
    turned = {name: value for name, value in wanted.items() if was.get(name) != value}
    is_all = wanted.keys() == was.keys() and replace_defaults(before, turned) == after
    return turned if is_all else None


def _read_file(path: Path) -> File:
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return File(SYMLINK, os.fsencode(path.readlink()))
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{path}: is not a plain file; move it out of the workspace")
    return File(EXECUTABLE if facts.st_mode & 0o100 else REGULAR, path.read_bytes())
