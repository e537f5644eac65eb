"""Sentences of a Markdown page: without code, tables and headings; an item of a list ends a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
FRONT_MATTER = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +")
END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*]*(?:[A-Z0-9]|CODE))")


def sentences(markdown: str) -> Iterator[str]:
    """Each sentence of the prose, on one line, a code span as one word and a link as its text."""
    for paragraph in _paragraphs(FENCE.sub("\n", FRONT_MATTER.sub("", markdown))):
        text = re.sub(r"`[^`]*`", "CODE", paragraph)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
        yield from (sentence for sentence in END.split(text) if sentence.strip())


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_apart = not line.strip() or line.startswith(("#", "|", "    "))
        if lines and (is_apart or ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if not is_apart:
            lines.append(ITEM.sub("", line).strip())


def word_count(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))
