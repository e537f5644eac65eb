"""The lines that mean something in a model's reply: headers, code fences, and the markers of a SEARCH block.

Each reader looks at one line and is linear in its length. All that models are known to put around such lines
(indentation, bold, headings, bullets, quoting, trailing blanks) is taken off here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from hillclimb.agent.llm.replies.reply_error import ReplyError, clip

KEYWORDS = ("IDEA", "FAMILY", "NOTE", "NEXT", "KNOB", "FILE", "DELETE")

_HEADER = re.compile(
    r"(?P<lead>[\s>#*_`+•-]{0,24}(?:[0-9]{1,2}[.)][ \t*`]{1,6})?)"
    rf"(?P<keyword>{'|'.join(KEYWORDS)}|{'|'.join(word.title() for word in KEYWORDS)})"
    r"[*_`]{0,3}[ \t]{0,4}:(?:\*{1,3}|`|__(?=\s))?(?P<value>.*)",
    re.DOTALL,
)
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<tag>[^`]*)", re.DOTALL)
_MARKER = re.compile(r"(?P<indent>[ \t]*)(?P<chevrons><{5,}|>{5,})[ \t]*(?P<word>\w{0,20})")

MarkerKind = Literal["search", "replace", "other"]
_MARKER_KINDS: dict[tuple[str, str], MarkerKind] = {("<", "SEARCH"): "search", (">", "REPLACE"): "replace"}


class UnreadableReply(ReplyError):
    """A reply that cannot be read; the message tells the model what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Header:
    """A line such as `FILE: kernel.py`."""

    keyword: str
    value: str
    commented: bool
    """It begins with `#`: a heading in prose, a comment in code."""


@dataclass(frozen=True)
class Fence:
    """A line that opens or closes fenced code."""

    indent: str
    ticks: str
    tag: str
    """The language and whatever else follows; empty on a line that may close."""

    def is_closed_by(self, line: str) -> bool:
        """Whether `line` is bare, at least as long, of the same character and no further in."""
        other = read_fence(line)
        if other is None or other.tag or len(other.indent) > len(self.indent):
            return False
        return other.ticks.startswith(self.ticks)


@dataclass(frozen=True)
class Marker:
    """A line of chevrons."""

    kind: MarkerKind
    count: int
    indent: str


def read_header(line: str) -> Header | None:
    """The header that a line is; None for any other line."""
    found = _HEADER.match(line)
    if not found:
        return None
    lead, keyword, value = found["lead"], found["keyword"], _undecorated(found["value"])
    if not keyword.isupper() and not _is_emphasised(lead, keyword, value):
        return None
    return Header(keyword.upper(), value, "#" in lead)


def _is_emphasised(lead: str, keyword: str, value: str) -> bool:
    """Whether `Idea:` in a sentence's case is a header: bold, a heading, or a file's name alone."""
    return "*" in lead or "#" in lead or (keyword == "File" and "." in value and " " not in value)


def _undecorated(value: str) -> str:
    value = value.strip()
    for mark in ("***", "**", "*", "`"):
        if value.endswith(mark) and value.count(mark) % 2:
            value = value.removesuffix(mark).rstrip()
    return value


def read_fence(line: str) -> Fence | None:
    """The code fence that a line is; None for any other line."""
    found = _FENCE.fullmatch(line)
    return Fence(found["indent"], found["ticks"], found["tag"].strip()) if found else None


def read_marker(line: str) -> Marker | None:
    """The marker that a line is; None for any other line."""
    if "<<<<<" not in line and ">>>>>" not in line:
        return None
    found = _MARKER.match(line)
    if not found:
        return None
    kind = _MARKER_KINDS.get((found["chevrons"][0], found["word"].upper()), "other")
    return Marker(kind, len(found["chevrons"]), found["indent"])


def divider_width(line: str, indent: str) -> int:
    """How many `=` the line between SEARCH and REPLACE has; 0 for any other line."""
    bare = line.removeprefix(indent).rstrip()
    return len(bare) if len(bare) >= 5 and bare.count("=") == len(bare) else 0


def quote(line: str) -> str:
    """A line as it is shown in a message, cut to a sane length."""
    return repr(clip(line.strip()))
