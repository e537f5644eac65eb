"""Carries a change over to files that have changed meanwhile: knobs.yaml by knob, other files by git's merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hillclimb.agent.llm.replies.declarations import merge_knobs
from hillclimb.agent.llm.replies.git import CONFLICT_MARKER_CHARS, merge_file
from hillclimb.agent.llm.replies.reply_error import ReplyError, clip
from hillclimb.agent.proposal import Edit
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, parse_knobs

_MAX_NAMED_FILES = 10


class MergeConflict(ReplyError):
    """The change does not fit the files as they are today; the message names files and lines."""


def merge(base: Mapping[str, str], proposed: Mapping[str, str], ours: Mapping[str, str]) -> tuple[Edit, ...]:
    """What makes of our files what the change from `base` to `proposed` made of its own; empty where it is in them.

    Each is a whole set of files by path. Raises MergeConflict where both sides changed the same or adjacent lines
    (in knobs.yaml, the same knob), MachineError where git cannot be run.
    """
    changed = sorted(path for path in {*base, *proposed} if base.get(path) != proposed.get(path))
    edits: list[Edit] = []
    conflicts: list[str] = []
    for path in changed:
        try:
            content = _merge_one(path, base.get(path), proposed.get(path), ours.get(path))
        except MergeConflict as conflict:
            conflicts.append(str(conflict))
            continue
        if content != ours.get(path):
            edits.append(Edit(path=path, content=content))
    if conflicts:
        raise MergeConflict(_join(conflicts))
    return tuple(edits)


def revert(before: Mapping[str, str], after: Mapping[str, str], now: Mapping[str, str]) -> tuple[Edit, ...]:
    """Edits that take the change from `before` to `after` back out of today's files. Raises MergeConflict."""
    return merge(after, before, now)


def _merge_one(path: str, base: str | None, proposed: str | None, ours: str | None) -> str | None:
    """One file as it comes out; None where it is gone."""
    if ours in (base, proposed):
        return proposed
    if proposed is None:
        raise MergeConflict(f"{clip(path)} is to be removed, and has changed meanwhile")
    if ours is None:
        raise MergeConflict(f"{clip(path)} is to be changed, and is gone meanwhile")
    if "\0" in f"{base}{proposed}{ours}":
        raise MergeConflict(f"{clip(path)} is no text and has changed on both sides")
    if path == KNOBS_FILE:
        return _merge_knobs(base or "", proposed, ours)
    return _merge_texts(path, base or "", proposed, ours)


def _merge_knobs(base: str, proposed: str, ours: str) -> str:
    by_knob = merge_knobs(base, proposed, ours)
    merged = _merge_texts(KNOBS_FILE, base, proposed, ours) if by_knob is None else by_knob
    try:
        parse_knobs(merged, Path(KNOBS_FILE))
    except CaseError as error:
        raise MergeConflict(
            f"{KNOBS_FILE} has changed meanwhile and would not load with the change: {error}"
        ) from None
    return merged


def _merge_texts(path: str, base: str, proposed: str, ours: str) -> str:
    output, conflicts = merge_file(base, proposed, ours)
    if not conflicts:
        return output
    where = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in _spans(output))
    raise MergeConflict(
        f"{clip(path)} has changed meanwhile where the change would change it (lines {where})"
    )


def _spans(merged: str) -> Iterator[tuple[int, int]]:
    """The lines of our file that each conflict covers, counted from 1."""
    line, first, side = 0, 0, ""
    for text in merged.split("\n"):
        mark = (
            text[:1] * CONFLICT_MARKER_CHARS
            if text[:CONFLICT_MARKER_CHARS] == text[:1] * CONFLICT_MARKER_CHARS
            else ""
        )
        if mark.startswith("<"):
            first, side = line + 1, "ours"
        elif mark.startswith("=") and side == "ours":
            side = "theirs"
        elif mark.startswith(">") and side == "theirs":
            yield first, max(first, line)
            side = ""
        elif side != "theirs":
            line += 1


def _join(conflicts: list[str]) -> str:
    more = len(conflicts) - _MAX_NAMED_FILES
    return "; ".join(conflicts[:_MAX_NAMED_FILES]) + (f"; and {more} more files" if more > 0 else "")
