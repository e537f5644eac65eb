"""From the changes that a reply asks for to the files as they are to be, or to what is wrong with them."""

from __future__ import annotations

import difflib
import html
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from hillclimb.agent.llm.replies.changes import DeleteFile, FileChange, SearchReplace, WholeFile
from hillclimb.agent.llm.replies.edit_checks import InapplicableChange, check_edits, is_elision, listed
from hillclimb.agent.llm.replies.matching import (
    MAX_MATCHES,
    FirstDifference,
    Match,
    find_matches,
    nearest_difference,
    reindent,
    to_lines,
)
from hillclimb.agent.llm.replies.reply_error import clip
from hillclimb.agent.proposal import Edit
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import Knobs, KnobValue, broken_constraint, parse_value

__all__ = ["InapplicableChange", "apply", "knob_values"]

_NUMBERED = re.compile(r"[ \t]{0,8}[0-9]{1,6}(?:[ \t]?[|:>│]|\t)[ \t]?")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTEXT_LINES = 5
"""Lines shown above and below the one that differs."""


def apply(changes: Sequence[FileChange], files: Mapping[str, str]) -> tuple[Edit, ...]:
    """The files that the changes lead to, where they differ from what they are.

    Blocks of one file are applied one after another, each to what the one before it left. Raises InapplicableChange,
    and nothing else; its message is for the author of the changes.
    """
    if not changes:
        return ()
    _refuse_lone_surrogates(changes)
    now, blocks = dict(files), Counter[str]()
    for change in changes:
        blocks[change.path] += 1
        _apply_change(change, blocks[change.path], now, files)
    paths = dict.fromkeys(change.path for change in changes)
    edits = tuple(
        Edit(path=path, content=now.get(path)) for path in paths if now.get(path) != files.get(path)
    )
    if not edits:
        raise InapplicableChange(f"nothing changes: {listed(paths)} would be as before.")
    check_edits(edits, files)
    return edits


def knob_values(raw: Mapping[str, str], knobs: Knobs) -> dict[str, KnobValue]:
    """Values of knobs, from their texts. Raises InapplicableChange for what there is not, or a constraint forbids."""
    values = {name: _knob_value(name, text, knobs) for name, text in raw.items()}
    if values and (trouble := broken_constraint(knobs, values)):
        raise InapplicableChange(f"KNOB: these values are not possible together: {trouble}.")
    return values


def _knob_value(name: str, text: str, knobs: Knobs) -> KnobValue:
    said = f"KNOB: {clip(name)}={clip(text)}"
    if name not in knobs:
        near = difflib.get_close_matches(name[:100].upper(), list(knobs), n=1)
        meant = f" did you mean {near[0]}?" if near else ""
        raise InapplicableChange(f"{said}: there is no such knob;{meant} the knobs are {listed(knobs)}.")
    try:
        return parse_value(knobs, name, text)
    except CaseError as error:
        raise InapplicableChange(f"{said}: it has no such value; {clip(error.remedy, 400)}.") from None


def _refuse_lone_surrogates(changes: Sequence[FileChange]) -> None:
    for change in changes:
        if any(_LONE_SURROGATE.search(text) for text in vars(change).values()):
            raise InapplicableChange(
                f"{clip(change.path)!r}: the change holds half of a surrogate pair, which is no character."
            )


def _apply_change(change: FileChange, block: int, now: dict[str, str], files: Mapping[str, str]) -> None:
    """One change, made to the files as they are by now."""
    _refuse_path(change, now)
    match change:
        case DeleteFile(path):
            del now[path]
        case WholeFile(path, content):
            now[path] = content
        case SearchReplace(path, search, replace) if path not in now or not (
            search.strip() or now[path].strip()
        ):
            now[path] = replace
        case SearchReplace(path):
            now[path] = _replace(change, block, now, files)


def _refuse_path(change: FileChange, now: Mapping[str, str]) -> None:
    path = change.path
    if path in now:
        return
    meant = posixpath.normpath(path[:240]).removeprefix("workspace/")
    if isinstance(change, DeleteFile) or (isinstance(change, SearchReplace) and change.search.strip()):
        near = [meant] if meant in now else difflib.get_close_matches(path[:240], list(now), n=1)
        hint = f" did you mean {clip(near[0])}?" if near else ""
        raise InapplicableChange(
            f"there is no file {clip(path)!r};{hint} paths are relative to workspace/, and the files there are "
            f"{listed(now)}."
        )
    if path.startswith("workspace/") and meant in now:
        raise InapplicableChange(f"{clip(path)!r}: paths are relative to workspace/; write {clip(meant)}.")


def _replace(change: SearchReplace, block: int, now: Mapping[str, str], files: Mapping[str, str]) -> str:
    """The file with a block's lines replaced."""
    text = now[change.path]
    lines, wanted = to_lines(text), to_lines(change.search)
    if not change.search.strip():
        raise InapplicableChange(
            f"{clip(change.path)}: the SEARCH of block {block} is empty, and the file exists; put lines of it there, "
            "or send the whole file."
        )
    matches = find_matches(lines, wanted)
    if len(matches) != 1:
        why = _why_many(matches) if matches else _why_missing(change, now, files)
        raise InapplicableChange(
            f"{clip(change.path)}: the SEARCH of block {block} (it begins {_begin(wanted)}) {why}"
        )
    after = _put(lines, matches[0], len(wanted), change, block)
    return "\n".join(after) + ("\n" if after and text.endswith("\n") else "")


def _put(lines: list[str], match: Match, count: int, change: SearchReplace, block: int) -> list[str]:
    there = lines[match.start : match.start + count]
    lines_instead = reindent(to_lines(change.replace), match)
    if lines_instead is None:
        raise InapplicableChange(
            f"{clip(change.path)}: the SEARCH of block {block} stands in line {match.start + 1} with "
            f"{len(match.removed_indent)} characters less of indentation, and its REPLACE has lines with fewer; indent "
            "both as the file is."
        )
    if all(line.endswith("\r") for line in there):
        lines_instead = [line.removesuffix("\r") + "\r" for line in lines_instead]
    return [*lines[: match.start], *lines_instead, *lines[match.start + count :]]


def _why_many(matches: Sequence[Match]) -> str:
    count = f"at least {MAX_MATCHES}" if len(matches) == MAX_MATCHES else str(len(matches))
    where = ", ".join(str(match.start + 1) for match in matches)
    return (
        f"stands in {count} places (lines {where}); add lines above or below it until it stands in one alone."
    )


def _why_missing(change: SearchReplace, now: Mapping[str, str], files: Mapping[str, str]) -> str:
    lines, wanted = to_lines(now[change.path]), to_lines(change.search)
    hint = _hint(change, wanted, now, files)
    difference = nearest_difference(lines, wanted)
    said = f"does not stand in the file{': ' + hint if hint else ''}."
    if difference is None:
        return f"{said} Nothing in its {len(lines)} lines is like it; copy lines as they stand there."
    return (
        f"{said} {_describe_difference(difference)} The lines there are:\n{_numbered(lines, difference.line)}"
    )


def _hint(change: SearchReplace, wanted: list[str], now: Mapping[str, str], files: Mapping[str, str]) -> str:
    """What the author probably did, where that can be told."""
    path, text = change.path, change.search
    if any(map(is_elision, wanted)):
        return "it leaves lines out with '...'; write every line of the passage, or choose a shorter one"
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        return "its lines have line numbers before them; leave those out"
    if html.unescape(text) != text and find_matches(to_lines(now[path]), to_lines(html.unescape(text))):
        return "it is HTML-escaped; write < > & as they are"
    if path in files and files[path] != now[path] and find_matches(to_lines(files[path]), wanted):
        return "an earlier block of this reply changed these lines; make one block of both"
    if len(change.replace.strip()) > 8 and find_matches(to_lines(now[path]), to_lines(change.replace)):
        return "what its REPLACE asks for is there already"
    elsewhere = [
        name for name in list(now)[:64] if name != path and find_matches(to_lines(now[name]), wanted)
    ]
    return f"it stands in {listed(elsewhere)}; name that file" if elsewhere else ""


def _describe_difference(difference: FirstDifference) -> str:
    found = "the end of the file" if difference.found is None else _quote(difference.found)
    wanted = "its end" if difference.wanted is None else _quote(difference.wanted)
    return (
        f"Nearest it first differs at line {difference.line + 1}: the file has {found}, SEARCH has {wanted}."
    )


def _numbered(lines: Sequence[str], around: int) -> str:
    first = max(0, around - _CONTEXT_LINES)
    shown = enumerate(lines[first : around + _CONTEXT_LINES + 1], first + 1)
    return "\n".join(f"{number:5} | {clip(line.rstrip(), 160)}" for number, line in shown)


def _begin(wanted: Sequence[str]) -> str:
    return _quote(next((line.strip() for line in wanted if line.strip()), ""))


def _quote(line: str) -> str:
    return repr(clip(line)) if line else "a blank line"
