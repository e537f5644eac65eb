"""Where the lines of a SEARCH block stand in a file: exactly, or up to blanks at their ends, or up to indentation.

Nothing fuzzier than that is ever taken for a match; what comes nearest is for messages alone.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

MAX_MATCHES = 10
"""Places that are told apart; a block that stands in two is refused already."""
_MAX_REINDENT_PLACES, _MAX_REINDENT_LINES = 200, 200_000
"""Places, and lines of them, that are looked at for another indentation."""
_MAX_FILE_LINES, _MAX_BLOCK_LINES, _MAX_PLACES_PER_LINE, _MAX_LINE_CHARS = 3000, 150, 30, 120
"""What is looked at for messages: lines of a file and of a block, places of one line, characters of it."""
_MARGIN_LINES = 4
"""Lines above and below a region."""


@dataclass(frozen=True)
class Match:
    """Lines of a file, `start` counted from 0, and what tells their indentation from the block's."""

    start: int
    added_indent: str = ""
    """What each of the file's lines has before the block's own indentation."""
    removed_indent: str = ""
    """What each of the block's lines has before the file's own indentation."""


@dataclass(frozen=True)
class FirstDifference:
    """Where a block and the lines of a file that are most like it first part."""

    line: int
    """Of the file, from 0."""
    found: str | None
    """The file's line; None where the file ends."""
    wanted: str | None
    """The block's line; None where the block ends."""


def to_lines(text: str) -> list[str]:
    """A text's lines without their ends; empty text has none."""
    return text.removesuffix("\n").split("\n") if text else []


def find_matches(lines: Sequence[str], wanted: Sequence[str]) -> list[Match]:
    """Places of the wanted lines, by the strictest rule that finds any; at most MAX_MATCHES."""
    return (
        [Match(start) for start in _places(lines, wanted)]
        or [Match(start) for start in _places(_trimmed(lines), _trimmed(wanted))]
        or _find_reindented(lines, wanted)
    )


def reindent(lines: Sequence[str], match: Match) -> list[str] | None:
    """Lines indented as the block must be to stand at a match; None where they have too little to take off."""
    if not all(line.startswith(match.removed_indent) for line in lines if line.strip()):
        return None
    return [
        match.added_indent + line.removeprefix(match.removed_indent) if line.strip() else line
        for line in lines
    ]


def _places(lines: Sequence[str], wanted: Sequence[str], most: int = MAX_MATCHES) -> list[int]:
    """Where one list of lines stands in another, by the search for one text in another, which is linear."""
    text, block = _joined(lines), _joined(wanted)
    found: list[int] = []
    at, line, counted = text.find(block), 0, 0
    while at >= 0 and len(found) < most:
        line, counted = line + text.count("\n", counted, at), at
        found.append(line)
        at = text.find(block, at + 1)
    return found


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"\n{line}" for line in lines) + "\n"


def _trimmed(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _find_reindented(lines: Sequence[str], wanted: Sequence[str]) -> list[Match]:
    most = min(_MAX_REINDENT_PLACES, _MAX_REINDENT_LINES // max(1, len(wanted)))
    places = _places([line.strip() for line in lines], [line.strip() for line in wanted], most)
    if len(places) == most:
        return []  # there may be more, and a place must be the only one
    found = [_match_reindented(lines[start : start + len(wanted)], wanted, start) for start in places]
    return [match for match in found if match][:MAX_MATCHES]


def _match_reindented(lines: Sequence[str], wanted: Sequence[str], start: int) -> Match | None:
    """The one indentation that tells these lines from those wanted; None where there is no such."""
    indents = [(_indent(a), _indent(b)) for a, b in zip(lines, wanted, strict=True) if b.strip()]
    if not indents:
        return None
    there, here = indents[0]
    surplus = len(there) - len(here)
    more = there[:surplus] if surplus > 0 else ""
    less = here[:-surplus] if surplus < 0 else ""
    return Match(start, more, less) if all(less + a == more + b for a, b in indents) else None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def nearest_difference(lines: Sequence[str], wanted: Sequence[str]) -> FirstDifference | None:
    """Where the block and the region of the file that is most like it first part; None where nothing is like it."""
    lines, wanted = _trimmed(lines), _trimmed(wanted)
    start = _best_start(lines, wanted[:_MAX_BLOCK_LINES])
    if start is None:
        return None
    first = max(0, start - _MARGIN_LINES)
    block = wanted[:_MAX_BLOCK_LINES]
    region = lines[first : start + len(block) + _MARGIN_LINES]
    i, j = _first_edit(block, region, start - first)
    while i < len(wanted) and _at(lines, first + j) == wanted[i]:  # below the part that was compared
        i, j = i + 1, j + 1
    return FirstDifference(first + j, _at(lines, first + j), _at(wanted, i))


def _first_edit(block: Sequence[str], region: Sequence[str], expected: int) -> tuple[int, int]:
    """Where block and region first part, in each; `expected` is the block's place in the region if nothing else is."""
    edits = difflib.SequenceMatcher(None, block, region, autojunk=False).get_opcodes()
    if edits[0][0] == "insert":
        edits = edits[1:]  # lines above the block
    found = next((edit for edit in edits if edit[0] != "equal"), None)
    if found is None:
        return edits[-1][2], edits[-1][4]
    _, i, until_i, j, until_j = found
    if i == 0:  # lines above the block are in it
        return 0, expected if until_i == len(block) else max(j, until_j - until_i)
    return i, j


def _at(lines: Sequence[str], index: int) -> str | None:
    return lines[index] if index < len(lines) else None


def _best_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The line at which most of the wanted lines would stand where they do."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        places[line.strip()].append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted):
        same = places.get(line.strip(), [])
        if line.strip() and len(same) <= _MAX_PLACES_PER_LINE:
            votes.update(place - offset for place in same)
    if votes:
        most = max(votes.values())
        return max(0, min(start for start, count in votes.items() if count == most))
    return _most_similar_start(lines, wanted)


def _most_similar_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where the longest wanted line has its nearest relation; None where it has none to speak of."""
    offset = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()), default=None)
    if offset is None:
        return None
    matcher = difflib.SequenceMatcher(None, "", wanted[offset].strip()[:_MAX_LINE_CHARS], autojunk=False)
    best, likeness = None, 0.7
    for number, line in enumerate(lines[:_MAX_FILE_LINES]):
        matcher.set_seq1(line.strip()[:_MAX_LINE_CHARS])
        if matcher.real_quick_ratio() > likeness and (ratio := matcher.quick_ratio()) > likeness:
            best, likeness = max(0, number - offset), ratio
    return best
