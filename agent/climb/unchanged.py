"""Why a candidate cannot run otherwise than its incumbent: then it need not be duelled."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from hillclimb.agent.git.trees import is_judged
from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, Knobs, parse_knobs

_IMPLICIT = frozenset({"__init__", "__main__", "conftest", "sitecustomize", "usercustomize"})
"""Modules that are run without being named."""
_FINDERS = re.compile(
    rb"\b(importlib|__import__|runpy|pkgutil|exec|glob|rglob|iterdir|listdir|scandir|walk)\b"
)
"""Words of a source that may load a file without naming it."""
_SILENT_FIELDS = {"doc", "requires"}
"""Of a knob: what only the search reads."""

Files = Mapping[str, bytes]
"""A workspace by path."""


def why_unchanged(before: Files, after: Files, entry: str | None) -> str:
    """Why nothing that is timed can differ, in the end of a sentence; empty where something may.

    `before` is the incumbent and `after` the candidate as it would be committed, its knob values as defaults; `entry`
    is the file that is run, None where a command may run any. What cannot be told for sure counts as a change.
    """
    before, after = _judged(before), _judged(after)
    changed = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    if changed and entry is None:
        return ""
    reasons = [_why_harmless(path, before, after, entry) for path in changed]
    if not all(reasons):
        return ""
    return "; ".join(reasons) or "it changes nothing but docs/"


def _judged(files: Files) -> Files:
    return {path: content for path, content in files.items() if is_judged(path)}


def _why_harmless(path: str, before: Files, after: Files, entry: str | None) -> str:
    old, new = (_decode(files.get(path)) for files in (before, after))
    if path == KNOBS_FILE:
        return _why_knobs_harmless(old, new, before, after)
    if not path.endswith(".py"):
        return ""
    if old is not None and new is not None and _syntax(old) is not None and _syntax(old) == _syntax(new):
        return f"{path} differs in comments or formatting only"
    if path != entry and not any(_may_load(path, files) for files in (before, after)):
        return f"no file imports or names {path}"
    return ""


def _may_load(path: str, files: Files) -> bool:
    """Whether a file of the workspace may run or read another one; its name anywhere in a text is enough."""
    stem = PurePosixPath(path).stem
    if stem in _IMPLICIT:
        return True
    name = re.compile(rb"\b" + re.escape(stem.encode()) + rb"\b")
    others = (content for other, content in files.items() if other not in (path, KNOBS_FILE))
    return any(name.search(content) or _FINDERS.search(content) for content in others)


def _why_knobs_harmless(old: str | None, new: str | None, before: Files, after: Files) -> str:
    """Knobs that come, go or get another default matter only where a source reads them."""
    was, now = (_parse_knobs(text) for text in (old, new))
    if was is None or now is None:
        return ""
    changed = [name for name in sorted({**was, **now}) if _behaviour(was, name) != _behaviour(now, name)]
    if not changed:
        return f"{KNOBS_FILE} differs in words only"
    if any(set(unread_knobs(_texts(files), changed)) != set(changed) for files in (before, after)):
        return ""
    return f"no file reads the knob{'s' if len(changed) > 1 else ''} {', '.join(changed)}"


def _behaviour(knobs: Knobs, name: str) -> object:
    return knobs[name].model_dump(exclude=_SILENT_FIELDS) if name in knobs else None


@lru_cache(maxsize=8)  # a sweep asks of the same text for every candidate
def _parse_knobs(text: str | None) -> Knobs | None:
    """None where the text cannot be read; no file is no knobs."""
    try:
        return parse_knobs(text, Path(KNOBS_FILE)) if text is not None else {}
    except CaseError:
        return None


def _texts(files: Files) -> dict[str, str]:
    decoded = ((path, _decode(content)) for path, content in files.items())
    return {path: text for path, text in decoded if text is not None}


def _decode(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _syntax(source: str) -> str | None:
    """The program without its comments and formatting; None where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
