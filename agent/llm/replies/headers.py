"""The one-line parts of a model's reply: its idea and family, notes, further ideas and knob values."""

from __future__ import annotations

from hillclimb.agent.llm.replies.markup import Header, UnreadableReply, quote
from hillclimb.agent.record.entries import Idea
from hillclimb.agent.rhythm.families import MAX_NAME_CHARS, slug

MAX_KNOBS, MAX_NOTES, MAX_NEXT_IDEAS = 64, 5, 12
MAX_IDEA_CHARS, MAX_NOTE_CHARS, MAX_FAMILY_CHARS = 200, 300, MAX_NAME_CHARS


class ReplyHeaders:
    """Collects them, header by header. What is over a limit is left out; what contradicts itself is refused."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.next_ideas: list[Idea] = []
        self.knobs: dict[str, str] = {}
        self._idea = self._family = self._prose = ""
        self._idea_at = 0

    @property
    def idea(self) -> str:
        """As the reply names it, else its first line of prose; empty where it has none."""
        return self._idea or self._prose

    @property
    def family(self) -> str:
        return to_slug(self._family)

    def read_prose(self, line: str) -> None:
        """A line of prose."""
        line = line.strip(" \t*#>`_-")[: 4 * MAX_IDEA_CHARS]
        if not self._prose and any(c.isalnum() for c in line):
            self._prose = one_line(line, MAX_IDEA_CHARS)

    def read(self, at: int, header: Header) -> None:
        """A header in line `at`, counted from 0. Raises UnreadableReply."""
        value = header.value
        match header.keyword:
            case "IDEA":
                self._set_idea(at, one_line(value, MAX_IDEA_CHARS))
            case "FAMILY":
                self._family = self._family or value
            case "NOTE" if value and len(self.notes) < MAX_NOTES:
                self.notes.append(one_line(value, MAX_NOTE_CHARS))
            case "NEXT" if value and len(self.next_ideas) < MAX_NEXT_IDEAS:
                self.next_ideas.append(_read_next(value))
            case "KNOB":
                self._set_knob(at, value)

    def _set_idea(self, at: int, idea: str) -> None:
        if not idea:
            self._prose = ""  # it stands in the line that follows
        elif self._idea and idea != self._idea:
            raise UnreadableReply(
                f"there are two ideas (lines {self._idea_at + 1} and {at + 1}); answer with one and put the other "
                "into a line 'NEXT: family: idea'."
            )
        else:
            self._idea, self._idea_at = idea, at

    def _set_knob(self, at: int, value: str) -> None:
        name, equals, wanted = (part.strip(" \t`'\"") for part in value.partition("="))
        if not name or not equals or not wanted:
            raise UnreadableReply(f"line {at + 1}: KNOB wants NAME=value, this is {quote(value)}.")
        if self.knobs.setdefault(name, wanted) != wanted:
            raise UnreadableReply(
                f"line {at + 1}: the knob {quote(name)} has another value already; give it one."
            )
        if len(self.knobs) > MAX_KNOBS:
            raise UnreadableReply(
                f"line {at + 1}: more than {MAX_KNOBS} KNOB lines; try fewer values at once."
            )


def to_slug(text: str) -> str:
    """A family's name in lower-case letters, digits and hyphens; `other` where nothing is left of it."""
    return slug(text[: 4 * MAX_FAMILY_CHARS]) or "other"


def one_line(text: str, longest: int) -> str:
    """Text as one printable line, cut where it is longer."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * longest]).split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _read_next(value: str) -> Idea:
    family, colon, idea = value.partition(":")
    if colon and idea.strip() and len(family) <= MAX_FAMILY_CHARS and len(family.split()) <= 3:
        return Idea(family=to_slug(family), idea=one_line(idea, MAX_IDEA_CHARS))
    return Idea(family="other", idea=one_line(value, MAX_IDEA_CHARS))
