"""What stands under a FILE line of a reply: SEARCH/REPLACE blocks, or a whole file in a code fence."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hillclimb.agent.llm.replies.markup import (
    Fence,
    Marker,
    UnreadableReply,
    divider_width,
    quote,
    read_fence,
    read_header,
    read_marker,
)
from hillclimb.agent.llm.replies.reply_error import clip

_NEVER = 1 << 60
_QUOTES = re.compile(r"\"{3}|'{3}")
_PROSE = (".md", ".markdown", ".rst", ".txt")
"""Files that often hold code fences of their own."""
_MAX_LOOKAHEAD_LINES = 2000
"""Lines looked through for a better end of a file once there is a possible one."""


@dataclass(frozen=True)
class SearchReplace:
    """Some lines of a file are to become others. Both texts end each line with a newline."""

    path: str
    search: str
    """Empty: the file is to be created."""
    replace: str


@dataclass(frozen=True)
class WholeFile:
    """A file as it is to be from its first line to its last."""

    path: str
    content: str


@dataclass(frozen=True)
class DeleteFile:
    """A file that is to go."""

    path: str


FileChange = SearchReplace | WholeFile | DeleteFile


class MarkerIndex:
    """Where in a reply the lines of chevrons stand, so that no block's end has to be searched for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines_by_marker: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for number, line in enumerate(lines):
            if marker := read_marker(line):
                self._lines_by_marker[marker.kind, marker.count].append(number)
                self._lines_by_marker[marker.kind, 0].append(number)

    def closing_marker(self, start: int, count: int) -> int | None:
        """The REPLACE line of the block that begins at `start`: one of as many chevrons, else the next one."""
        for width in (count, 0):
            end = self._next("replace", width, start)
            if end < self._next("search", width, start):
                return end
        return None

    def next_search_marker(self, start: int) -> int | None:
        """The next SEARCH line after `start`."""
        found = self._next("search", 0, start)
        return found if found < _NEVER else None

    def next_unknown_marker(self, start: int) -> int | None:
        """The next line of chevrons after `start` that is neither SEARCH nor REPLACE."""
        found = self._next("other", 0, start)
        return found if found < _NEVER else None

    def _next(self, kind: str, count: int, after: int) -> int:
        places = self._lines_by_marker.get((kind, count), [])
        index = bisect_right(places, after)
        return places[index] if index < len(places) else _NEVER


def read_block(
    lines: Sequence[str], start: int, marker: Marker, markers: MarkerIndex, path: str
) -> tuple[SearchReplace, int]:
    """The block whose SEARCH line is `start`, and the line after it. Raises UnreadableReply."""
    end = markers.closing_marker(start, marker.count)
    if end is None:
        raise UnreadableReply(_why_unclosed(lines, start, markers))
    ruler = _divide(lines, start, end, marker)
    search, replace = (
        _as_text(_bare(_dedented(lines[first:last], marker.indent), path))
        for first, last in ((start + 1, ruler), (ruler + 1, end))
    )
    return SearchReplace(path, search, replace), end + 1


def _divide(lines: Sequence[str], start: int, end: int, marker: Marker) -> int:
    rulers = {i: width for i in range(start + 1, end) if (width := divider_width(lines[i], marker.indent))}
    found = [i for i, width in rulers.items() if width == marker.count] or list(rulers)
    if len(found) == 1:
        return found[0]
    where = f"the SEARCH block in lines {start + 1} to {end + 1}"
    if not found:
        raise UnreadableReply(
            f"{where} has no line '=======' between what to find and what to put there; add it."
        )
    shown = ", ".join(str(i + 1) for i in found[:10])
    raise UnreadableReply(
        f"{where} has {len(found)} lines that are only '=' (lines {shown}), so where REPLACE begins is unclear; "
        "write this block's three markers with 9 characters each (<<<<<<<<< SEARCH, =========, >>>>>>>>> REPLACE)."
    )


def _why_unclosed(lines: Sequence[str], start: int, markers: MarkerIndex) -> str:
    restart, stranger = markers.next_search_marker(start), markers.next_unknown_marker(start)
    before = f"the next one begins in line {restart + 1}" if restart is not None else "the reply ends"
    said = (
        f"the SEARCH block that begins in line {start + 1} is not closed by '>>>>>>> REPLACE' before {before}"
    )
    if stranger is not None and (restart is None or stranger < restart):
        return f"{said}; line {stranger + 1} is {quote(lines[stranger])}: write '>>>>>>> REPLACE' there."
    if restart is None:
        return f"{said}; if it was cut off for its length, answer again with smaller blocks."
    return f"{said}; close each block before the next."


def read_whole(
    lines: Sequence[str], start: int, fence: Fence, path: str, *, wrapped: bool
) -> tuple[WholeFile, int]:
    """The file in the fence opened in line `start`, and the line after it. Raises UnreadableReply.

    `wrapped`: the reply itself is in a fence, whose end is not the file's.
    """
    end = _closing_fence(lines, start, fence, path, wrapped)
    content = _dedented(lines[start + 1 : end], fence.indent)
    _refuse_diff(content, fence, path, start)
    body = "\n".join(content).rstrip("\n") if any(map(str.strip, content)) else ""
    return WholeFile(path, f"{body}\n" if body else ""), end + 1


def _closing_fence(lines: Sequence[str], start: int, fence: Fence, path: str, wrapped: bool) -> int:
    """The line that closes the file's fence.

    In Python, the first that could and is not inside a docstring; in prose, which has fences of its own, the
    last that could; in other files the first.
    """
    could: list[int] = []
    for line, is_inside in _candidates(lines, start, fence, path):
        could.append(line)
        if not is_inside and not path.endswith(_PROSE):
            return line
    if not could:
        raise UnreadableReply(
            f"the fence that opens in line {start + 1} with the whole of {clip(path)} is never closed by a line "
            f"{fence.ticks[:9]!r}; if the reply was cut off for its length, send SEARCH blocks instead of whole files."
        )
    if not path.endswith(_PROSE):
        return could[0]
    is_last = not any(line.strip() for line in lines[could[-1] + 1 :])
    return could[-2] if wrapped and is_last and len(could) > 1 else could[-1]


def _candidates(lines: Sequence[str], start: int, fence: Fence, path: str) -> Iterator[tuple[int, bool]]:
    """Lines that could close the fence, and whether inside a string, up to where the reply's next part begins."""
    string, first = "", _NEVER
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if number - first > _MAX_LOOKAHEAD_LINES:
            return
        if fence.is_closed_by(line):
            first = min(first, number)
            yield number, bool(string)
        elif len(fence.ticks) == 3 and _begins_part(lines, number, number > first):
            return
        elif path.endswith(".py"):
            string = _string_after(line, string)


def _begins_part(lines: Sequence[str], number: int, closable: bool) -> bool:
    """Whether a line inside a fence must be the reply's own; any header may be, once the fence could be closed."""
    header = read_header(lines[number])
    if header is None or header.commented:
        return False
    if header.keyword != "FILE":
        return closable
    return begins_with_block(lines, number + 1) or read_fence(_next_line(lines, number + 1)) is not None


def _string_after(line: str, string: str) -> str:
    """Which triple quote is open after a line, given the one that is before it."""
    for found in _QUOTES.findall(line):
        if not string or found == string:
            string = "" if string else found
    return string


def begins_with_block(lines: Sequence[str], start: int) -> bool:
    """Whether the next line that is not blank is a SEARCH marker."""
    marker = read_marker(_next_line(lines, start))
    return marker is not None and marker.kind == "search"


def _next_line(lines: Sequence[str], start: int) -> str:
    return next((lines[i] for i in range(start, len(lines)) if lines[i].strip()), "")


def _refuse_diff(content: Sequence[str], fence: Fence, path: str, start: int) -> None:
    if path.endswith((".diff", ".patch")):
        return
    first = next((line for line in content if line.strip()), "")
    if fence.tag.lower() in ("diff", "patch") or first.startswith(("diff --git ", "--- a/", "@@ -")):
        raise UnreadableReply(
            f"the fence in line {start + 1} holds a diff of {clip(path)}, not the file; write SEARCH/REPLACE blocks "
            "(without '+' and '-' before the lines) or the whole file."
        )


def _dedented(lines: Sequence[str], indent: str) -> list[str]:
    """The lines without the indentation of their markers, where all of them have it."""
    if indent and all(line.startswith(indent) or not line.strip() for line in lines):
        return [line.removeprefix(indent) for line in lines]
    return list(lines)


def _bare(lines: list[str], path: str) -> list[str]:
    """One half of a block without the code fence that some put around it."""
    if path.endswith(_PROSE) or len(lines) < 2:
        return lines
    first = read_fence(lines[0])
    return lines[1:-1] if first and first.is_closed_by(lines[-1]) else lines


def _as_text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
