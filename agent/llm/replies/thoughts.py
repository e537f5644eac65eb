"""Where a model's thoughts end and its reply begins, whatever marks its server puts around thoughts.

A mark is a tag, a word in brackets, a channel, or the like. Everything before the last end mark behind which the
format begins is thought: behind it the next header is IDEA, or one of a change where none came before. Marks within
the code of a reply are part of the code.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from hillclimb.agent.llm.replies.changes import MarkerIndex
from hillclimb.agent.llm.replies.markup import Fence, UnreadableReply, read_fence, read_header, read_marker

_KNOWN = r"(?:[\w.\-]{1,20}:)?(?:think|thinking|thought|thoughts|reasoning|reflection|analysis|scratchpad)"
_END = re.compile(
    rf"(?:</{_KNOWN}\s{{0,3}}>|</(?P<tag>[a-z][\w:.\-]{{0,40}})\s{{0,3}}>|\[/[A-Z][A-Z_ ]{{2,24}}\]"
    r"|<\|[^<>|\n]{1,60}\|>|<\w{1,24}\|>|assistantfinal|◁/[^◁▷\n]{1,24}▷|<unused\d{1,4}>)"
    r"(?:<[a-z][\w:.\-]{0,40}>)?",  # the tag around the reply, on the same line
    re.IGNORECASE,
)
_OPENING = re.compile(r"\s*<(think(?:ing)?)\b[^<>\n]{0,80}>", re.IGNORECASE)
_CHANGES = ("FILE", "DELETE", "KNOB")
MAX_FENCES_TRIED = 50
"""Lines that may close a fence, of which one is looked for."""

Span = tuple[int, int]
"""Line and column, both from 0."""


def end_of_thoughts(lines: Sequence[str], markers: MarkerIndex) -> Span:
    """Where the reply begins. Raises UnreadableReply where thoughts that were opened never end."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    opened = _OPENING.match(lines[first]) if lines else None
    begin = _closing_tag(lines, first, opened[1]) if opened else (0, 0)
    if begin is None:
        raise UnreadableReply("the reply ends within its <think> part; think less and answer in the format.")
    return _Marks(lines, markers).last_end(begin)


def _closing_tag(lines: Sequence[str], first: int, name: str) -> Span | None:
    """Behind the tag that closes what the first line opens."""
    closing = re.compile(rf"</{name}\s{{0,3}}>", re.IGNORECASE)
    for number in range(first, len(lines)):
        if found := closing.search(lines[number]):
            return number, found.end()
    return None


class _Marks:
    """The headers and code of a reply by their lines; every line is looked at once."""

    def __init__(self, lines: Sequence[str], markers: MarkerIndex) -> None:
        self._lines, self._markers = lines, markers
        self._keywords = [
            (n, header.keyword) for n, line in enumerate(lines) if (header := read_header(line))
        ]
        self._header_lines = [number for number, _ in self._keywords]
        self._ideas = [number for number, keyword in self._keywords if keyword == "IDEA"]
        self._bare_fences = [
            n for n, line in enumerate(lines) if (fence := read_fence(line)) and not fence.tag
        ]

    def last_end(self, begin: Span) -> Span:
        """Behind the last mark that ends thoughts; `begin` where there is none."""
        number, column = begin
        while number < len(self._lines):
            after = self._end_of_code(number) if column == 0 else None
            if after is not None:
                number = after
                continue
            for mark in _END.finditer(self._lines[number], column):
                if self._begins_reply(begin, number, mark):
                    begin = (number, mark.end())
            number, column = number + 1, 0
        return begin

    def _end_of_code(self, start: int) -> int | None:
        """The line after the SEARCH block or the fence that begins in a line; None where none does."""
        line = self._lines[start]
        if (marker := read_marker(line)) and marker.kind == "search":
            end = self._markers.closing_marker(start, marker.count)
        elif fence := read_fence(line):
            end = self._closing_fence(start, fence)
        else:
            return None
        if end is None or self._holds_idea(start, end):
            return None  # a draft, or a fence around the whole reply
        return end + 1

    def _closing_fence(self, start: int, fence: Fence) -> int | None:
        at = bisect_right(self._bare_fences, start)
        tried = self._bare_fences[at : at + MAX_FENCES_TRIED]
        return next((number for number in tried if fence.is_closed_by(self._lines[number])), None)

    def _holds_idea(self, start: int, end: int) -> bool:
        at = bisect_right(self._ideas, start)
        return at < len(self._ideas) and self._ideas[at] < end

    def _begins_reply(self, begin: Span, number: int, mark: re.Match[str]) -> bool:
        rest = self._lines[number][mark.end() :]
        header = read_header(rest)
        if mark["tag"] and header is None and self._lines[number].strip() != mark[0]:
            return False  # markup in a sentence
        following = header.keyword if header else self._next_keyword(number)
        if following == "IDEA":
            return True
        return following in _CHANGES and not self._has_header(begin, number)

    def _next_keyword(self, number: int) -> str:
        at = bisect_right(self._header_lines, number)
        return self._keywords[at][1] if at < len(self._keywords) else ""

    def _has_header(self, begin: Span, end: int) -> bool:
        """Whether a header stands behind `begin` and above a line."""
        at = bisect_left(self._header_lines, begin[0] + bool(begin[1]))
        return at < len(self._header_lines) and self._header_lines[at] < end
