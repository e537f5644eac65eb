"""What a model's reply says: an idea, notes, knob values and changes to files.

The format is the one that the prompts explain. Whatever models are known to put around it is tolerated; what
could be meant in two ways is an error whose message tells the model what to write instead. One pass over the
lines, in time linear in the reply's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hillclimb.agent.llm.replies.changes import (
    DeleteFile,
    FileChange,
    MarkerIndex,
    SearchReplace,
    WholeFile,
    begins_with_block,
    read_block,
    read_whole,
)
from hillclimb.agent.llm.replies.headers import ReplyHeaders
from hillclimb.agent.llm.replies.markup import (
    Fence,
    Header,
    Marker,
    UnreadableReply,
    quote,
    read_fence,
    read_header,
    read_marker,
)
from hillclimb.agent.llm.replies.reply_error import clip
from hillclimb.agent.llm.replies.thoughts import end_of_thoughts
from hillclimb.agent.record.entries import Idea

__all__ = [
    "DeleteFile",
    "FileChange",
    "ParsedReply",
    "SearchReplace",
    "UnreadableReply",
    "WholeFile",
    "read_reply",
]

MAX_REPLY_CHARS, MAX_REPLY_LINES = 8 << 20, 100_000
"""Characters and lines of the largest reply that is read."""
MAX_CHANGES = 200
MAX_PATH_BYTES = 240
"""Bytes."""
_FORMAT_HINT = "write 'FILE: path', then SEARCH/REPLACE blocks or the whole file in a code fence"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DIFF = ("diff --git ", "--- a/", "+++ b/", "@@ -")


@dataclass(frozen=True)
class ParsedReply:
    """A reply, read."""

    idea: str
    """One printable line."""
    family: str = "other"
    """A slug: a-z, 0-9 and hyphens."""
    notes: tuple[str, ...] = ()
    next_ideas: tuple[Idea, ...] = ()
    knobs: dict[str, str] = field(default_factory=dict)
    """Values to try, as written."""
    changes: tuple[FileChange, ...] = ()
    """In the order given; paths as written but for a leading `./`, relative to workspace/."""


def read_reply(text: str) -> ParsedReply:
    """The answer in a model's reply. Raises UnreadableReply, and nothing else, where there is none to be read."""
    _refuse_excess(text)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    number, column = end_of_thoughts(lines, MarkerIndex(lines))
    lines[number] = lines[number][column:]
    return _ReplyParser(lines).read(number)


def _refuse_excess(text: str) -> None:
    if not text.strip():
        raise UnreadableReply(f"the reply is empty; {_FORMAT_HINT}.")
    if len(text) > MAX_REPLY_CHARS or text.count("\n") >= MAX_REPLY_LINES:
        raise UnreadableReply(
            f"the reply has {len(text)} characters in {text.count(chr(10)) + 1} lines, more than the {MAX_REPLY_CHARS} "
            f"characters or {MAX_REPLY_LINES} lines that are read; send SEARCH blocks instead of whole files."
        )
    if found := _LONE_SURROGATE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise UnreadableReply(
            f"line {line} holds half of a surrogate pair, which is no character; leave it out."
        )


class _ReplyParser:
    """One pass over the lines of a reply."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._markers = lines, MarkerIndex(lines)
        self._remarks = ReplyHeaders()
        self._changes: list[FileChange] = []
        self._declared: dict[str, tuple[type[FileChange], int]] = {}
        """How each path is changed, and in which line that is said."""
        self._path = ""
        """Of the FILE line that counts; empty where there is none."""
        self._path_at = 0
        self._awaits_content = False
        """That FILE line has no content yet."""
        self._saw_prose = False
        """There is prose between it and here."""
        self._fenced = False
        """Inside a fence that is not a file's: around the whole reply, around blocks, or an illustration."""

    def read(self, start: int) -> ParsedReply:
        at = start
        while at < len(self._lines):
            at = self._step(at)
        self._end_section()
        said = self._remarks
        if not self._changes and not said.knobs:
            raise UnreadableReply(_why_nothing(self._lines[start:], start))
        if not said.idea:
            raise UnreadableReply("the reply has no line 'IDEA: ...'; begin with the idea in one line.")
        return ParsedReply(
            said.idea,
            said.family,
            tuple(said.notes),
            tuple(said.next_ideas),
            said.knobs,
            tuple(self._changes),
        )

    def _step(self, at: int) -> int:
        """Read what begins at a line; the line after it."""
        line = self._lines[at]
        if not line or line.isspace():
            return at + 1
        if marker := read_marker(line):
            return self._read_marker(at, marker)
        if fence := read_fence(line):
            return self._read_fence(at, fence)
        header = read_header(line)
        if header and header.keyword in ("FILE", "DELETE"):
            self._begin_section(at, header)
        elif header and not (header.commented and self._fenced):
            self._remarks.read(at, header)
        else:
            self._read_prose(at)
        return at + 1

    def _read_prose(self, at: int) -> None:
        line = self._lines[at]
        if line.lstrip().startswith("&lt;" * 5):
            raise UnreadableReply(f"line {at + 1} is HTML-escaped ({quote(line)}); write < > & as they are.")
        self._saw_prose = True
        if not self._fenced:
            self._remarks.read_prose(line)

    def _read_marker(self, at: int, marker: Marker) -> int:
        if marker.kind != "search":
            raise UnreadableReply(_why_stray(self._lines[at], at, marker))
        if not self._path:
            raise UnreadableReply(
                f"the SEARCH block in line {at + 1} names no file; write 'FILE: path' in the line before it."
            )
        change, after = read_block(self._lines, at, marker, self._markers, self._path)
        self._add(change)
        return after

    def _read_fence(self, at: int, fence: Fence) -> int:
        closes = self._fenced and not fence.tag
        if closes and self._saw_prose:
            self._end_section()  # the reply's own fence ends, so a file that is still awaited does not come
        if not self._awaits_content:
            self._fenced = not closes
            return at + 1
        if begins_with_block(self._lines, at + 1):
            self._fenced = True
            return at + 1
        change, after = read_whole(self._lines, at, fence, self._path, wrapped=self._fenced)
        self._add(change)
        return after

    def _begin_section(self, at: int, header: Header) -> None:
        self._end_section()
        path = header.value.strip("*`\"' \t").removeprefix("./")
        if not path:
            raise UnreadableReply(
                f"line {at + 1}: {header.keyword} names no file; write '{header.keyword}: path'."
            )
        if (size := len(path.encode())) > MAX_PATH_BYTES:
            raise UnreadableReply(
                f"line {at + 1}: the path after {header.keyword} has {size} bytes ({quote(path)}), and at most "
                f"{MAX_PATH_BYTES} may be; write nothing else in that line."
            )
        self._path_at, self._saw_prose = at, False
        if header.keyword == "DELETE":
            self._path = ""
            self._add(DeleteFile(path))
        else:
            self._path, self._awaits_content = path, True

    def _end_section(self) -> None:
        if self._awaits_content:
            raise UnreadableReply(
                f"line {self._path_at + 1}: FILE: {clip(self._path)} is followed by neither a SEARCH/REPLACE block "
                "nor a code fence with the whole file; put one of them right after it."
            )

    def _add(self, change: FileChange) -> None:
        before, line = self._declared.get(change.path, (SearchReplace, 0))
        first = change.path not in self._declared
        if not first and not (before is type(change) is SearchReplace):
            raise UnreadableReply(
                f"{clip(change.path)} is changed {_spell(before)} in line {line + 1} and {_spell(type(change))} in "
                f"line {self._path_at + 1}; say once how the file is to be."
            )
        self._declared[change.path] = type(change), self._path_at
        self._awaits_content = False
        self._changes.append(change)
        if len(self._changes) > MAX_CHANGES:
            raise UnreadableReply(
                f"the reply makes more than {MAX_CHANGES} changes; make fewer and larger ones."
            )


def _spell(form: type[FileChange]) -> str:
    return {SearchReplace: "by SEARCH/REPLACE blocks", WholeFile: "as a whole file", DeleteFile: "by DELETE"}[
        form
    ]


def _why_stray(line: str, at: int, marker: Marker) -> str:
    if marker.kind == "replace":
        return f"line {at + 1} is {quote(line)} without a '<<<<<<< SEARCH' line before it; write the block in full."
    wanted = "<<<<<<< SEARCH" if line.lstrip().startswith("<") else ">>>>>>> REPLACE"
    return f"line {at + 1} is {quote(line)}, which is no marker of a block; write '{wanted}'."


def _why_nothing(lines: list[str], start: int) -> str:
    """Why a reply without changes has none, as far as its looks tell."""
    first = next((line.strip() for line in lines if line.strip() and not read_fence(line)), "")
    if first.startswith(("{", "[")):
        return f"the reply is JSON; {_FORMAT_HINT}."
    diff = next((i for i, line in enumerate(lines, start + 1) if line.startswith(_DIFF)), None)
    if diff:
        return f"line {diff} begins a diff, which is not read; {_FORMAT_HINT}."
    fence = next((i for i, line in enumerate(lines, start + 1) if read_fence(line)), None)
    if fence:
        return f"the code in line {fence} belongs to no file; {_FORMAT_HINT}."
    return f"the reply changes nothing: it has no FILE, DELETE or KNOB line; {_FORMAT_HINT}."
