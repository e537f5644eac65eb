"""Figures and names in messages: plurals, and the nearest of many names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMED = 3
"""Names that a message tells of a long list."""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 win`, `2 wins`; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like a name, the best first; three at most."""
    names = list(dict.fromkeys(known))
    folded: dict[str, str] = {}
    for other in names:
        folded.setdefault(other.casefold(), other)
    found = difflib.get_close_matches(name.casefold(), list(folded), n=NAMED)
    return [folded[match] for match in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'scale'?`; empty where no known name is like it."""
    found = nearest(name, known)
    return f"did you mean {found[0]!r}?" if found else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to give in place of a name that is not known: the nearest one, or what there is."""
    names = list(known)
    return did_you_mean(name, names) or f"choose among {choices(name, names)}"


def choices(name: str, known: Iterable[str]) -> str:
    """All known names where they are few, else the nearest three and how many there are."""
    names = list(dict.fromkeys(known))
    if len(names) <= 2 * NAMED:
        return ", ".join(names) or "none"
    shown = nearest(name, names) or names[:NAMED]
    return f"{', '.join(shown)} ({len(shown)} of {len(names)})"
