"""What a proposal may touch: a policy over paths and file modes, pure, and nothing runs before it agrees.

Globs are matched against the whole path relative to workspace/, case-sensitively, part by part:
`*`, `?` and `[...]` stay within one part, and a part that is `**` stands for any number of parts, none
included. So `*.py` is the Python files at the top (not those below), `docs/**` everything below docs/, and
`**/*.py` every Python file.
"""

from __future__ import annotations

import fnmatch
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

from hillclimb.agent.git.repository import ABSENT, EXECUTABLE, GITLINK, SYMLINK, Change
from hillclimb.agent.proposal import Edit

_MAX_PATH_BYTES, _MAX_PART_BYTES = 240, 100
_KINDS = {EXECUTABLE: "an executable", SYMLINK: "a symbolic link", GITLINK: "a git submodule"}


def why_forbidden(edits: Iterable[Edit], mutable: Sequence[str], existing: Collection[str]) -> str | None:
    """The first thing about the edits' paths that the policy forbids, as a sentence; None if nothing is.

    `existing` are the incumbent's files relative to workspace/.
    """
    taken = _paths_by_folded_name(existing)
    for edit in edits:
        reason = why_not_mutable(edit.path, mutable) or _why_case_collision(edit.path, taken)
        if reason:
            return reason
        taken |= _paths_by_folded_name([edit.path])
    return None


def why_not_mutable(path: str, mutable: Sequence[str]) -> str | None:
    """Why this path may not be changed by a proposal; None if it may."""
    shown = repr(path[:_MAX_PATH_BYTES])
    malformed = _why_malformed(path)
    if malformed:
        return f"{shown} {malformed}"
    if not any(matches(path, glob) for glob in mutable):
        return f"{shown} matches none of the mutable globs ({', '.join(mutable)})"
    return None


def why_changed_outside(
    changes: Iterable[Change], workspace: str, mutable: Sequence[str], existing: Collection[str]
) -> str | None:
    """The same policy over what differs between two whole trees, file modes included.

    `workspace` is its path in the tree, `existing` as in why_forbidden. This is what holds for trees that a
    person or another program made, and it is checked for every candidate before it runs.
    """
    edits = []
    for change in changes:
        if not change.path.startswith(f"{workspace}/"):
            return f"{change.path!r} is outside the workspace"
        if change.new_mode != change.old_mode and change.new_mode in _KINDS:
            return f"{change.path!r} becomes {_KINDS[change.new_mode]}"
        content = None if change.new_mode == ABSENT else ""
        edits.append(Edit(path=change.path[len(workspace) + 1 :], content=content))
    return why_forbidden(edits, mutable, existing)


def why_inapplicable(edits: Sequence[Edit], existing: Collection[str]) -> str | None:
    """Why permitted edits cannot be made to the incumbent's files; None if they can."""
    paths = [edit.path for edit in edits]
    for path in paths:
        if paths.count(path) > 1:
            return f"{path!r} is edited twice"
    for edit in edits:
        if edit.content is None and edit.path not in existing:
            return f"{edit.path!r} is to be removed and does not exist"
    after = (set(existing) | set(paths)) - {edit.path for edit in edits if edit.content is None}
    for path in paths:
        clash = path in after and next((parent for parent in _parents(path) if parent in after), None)
        if clash or (path in after and any(other.startswith(f"{path}/") for other in after)):
            return f"{path!r} would be both a file and a folder"
    return None


def may_hold_secrets(name: str) -> bool:
    """Whether a file of this name (`.env`, `.env.local`) is where people keep keys: none is ever committed."""
    folded = _fold(name)
    return folded == ".env" or (folded.startswith(".env.") and folded != ".env.example")


def belongs(path: str) -> bool:
    """Whether a file may be part of a case: caches and files for keys are none, whatever git tracks or ignores."""
    *folders, name = path.split("/")
    return "__pycache__" not in folders and not may_hold_secrets(name)


def matches(path: str, glob: str) -> bool:
    """Whether a path relative to workspace/ matches a glob as described above."""
    return _match(path.split("/"), glob.split("/"))


def _match(parts: list[str], globs: list[str]) -> bool:
    if not globs or globs == ["**"]:
        return bool(parts) == bool(globs)
    if globs[0] == "**":
        return any(_match(parts[skipped:], globs[1:]) for skipped in range(len(parts)))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], globs[0]) and _match(parts[1:], globs[1:])


def _why_malformed(path: str) -> str | None:
    if not path:
        return "is empty"
    if len(path.encode(errors="surrogatepass")) > _MAX_PATH_BYTES:
        return f"is longer than {_MAX_PATH_BYTES} bytes"
    if path.startswith("/"):
        return "is absolute"
    if "\\" in path:
        return "has a backslash"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in path):
        return "has a control or invisible character"
    return next((reason for part in path.split("/") if (reason := _why_malformed_part(part))), None)


def _why_malformed_part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"has a part {part!r}"
    if len(part.encode()) > _MAX_PART_BYTES:
        return f"has a part longer than {_MAX_PART_BYTES} bytes"
    folded = _fold(part)
    if folded.startswith((".git", "git~")):
        return "names a file of git's own"
    if may_hold_secrets(part):
        return "is a file for keys, which no commit may hold"
    if part != part.strip() or part.endswith("."):
        return f"has a part {part!r} that begins or ends with a space, or ends with a dot"
    if ":" in part:
        return "has a colon"
    return None


def _why_case_collision(path: str, taken: dict[str, str]) -> str | None:
    """A path that only case or Unicode form tells apart from another one: the same file on many disks."""
    for prefix in (*_parents(path), path):
        other = taken.get(_fold(prefix), prefix)
        if other != prefix:
            return f"{path!r} differs from {other!r} only in case or Unicode form"
    return None


def _paths_by_folded_name(paths: Iterable[str]) -> dict[str, str]:
    """Every path and the folders above it, by what a careless file system takes them for."""
    return {_fold(prefix): prefix for path in paths for prefix in (*_parents(path), path)}


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
