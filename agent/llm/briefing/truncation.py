"""How much of each part a briefing shows, and the order in which it gives way to the token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Extent:
    """Counts are of the newest, unless said otherwise. What is left out is said where it is left out."""

    rejected: int
    """Rejected ideas."""
    detailed: int
    """Of them, those with the judge's words in full."""
    notes: int
    """Lines that earlier replies wanted remembered."""
    ideas: int
    """Ideas suggested and not tried yet."""
    troubled: int
    """Replies that never became candidates."""
    observations: int
    """1: what was seen of every value of every knob; 0: the best and the worst configuration only."""
    contract: int
    """2: contract.py whole; 1: its beginning; 0: none of it."""
    buckets: int
    """Of the profile, largest first."""
    lanes: int
    """Lines on masked lanes and loop trips."""
    wins: int
    ablations: int
    """Wins taken back for a check."""
    whole: int
    """Files other than the entry and knobs.yaml that are shown whole, smallest first."""
    people: int
    """1: the notes of people in docs/notes.md; 0: not."""
    named: int
    """Of the files not shown whole, those shown by their outline rather than their name, smallest first."""
    program: int
    """1: program.md whole; 0: its head."""


STEPS: tuple[tuple[str, int], ...] = (
    ("rejected", 12),
    ("detailed", 0),
    ("notes", 8),
    ("ideas", 12),
    ("troubled", 1),
    ("observations", 0),
    ("contract", 1),
    ("lanes", 8),
    ("buckets", 3),
    ("wins", 8),
    ("ablations", 3),
    ("whole", 0),
    ("people", 0),
    ("contract", 0),
    ("named", 0),
    ("program", 0),
    ("rejected", 0),
    ("troubled", 0),
    ("notes", 0),
    ("ideas", 0),
    ("ablations", 0),
    ("wins", 0),
    ("lanes", 0),
    ("buckets", 0),
)
"""What gives way, in this order, each to as little as the figure before the next one is touched.

History gives way before the texts that never change: those then stay as they are from one briefing to the next, and
with them the prefix that a provider caches. The parts that change seldom are cut in few, coarse steps for the same
reason. Never cut are the rules with the reply format, the head of program.md, the entry file and knobs.yaml.
"""


def shrink(extent: Extent, fits: Callable[[Extent], bool]) -> Extent:
    """The extent after as many steps as it takes; where nothing fits, the smallest there is."""
    for name, floor in STEPS:
        if fits(extent):
            return extent
        extent = _shrink_field(extent, name, floor, fits)
    return extent


def _shrink_field(extent: Extent, name: str, floor: int, fits: Callable[[Extent], bool]) -> Extent:
    """The largest value of one part, from `floor` to below what it is, that fits; `floor` where none does."""
    low, high = floor, getattr(extent, name) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(_with(extent, name, middle)) else (low, middle - 1)
    return _with(extent, name, min(low, getattr(extent, name)))


def _with(extent: Extent, name: str, value: int) -> Extent:
    return replace(extent, **{name: value})


@dataclass(frozen=True)
class BriefingPart:
    """One part of a briefing as it is shown, and what was cut out of it; the text says so too."""

    text: str
    cuts: tuple[str, ...] = ()


def newest(lines: Sequence[str], count: int, what: str) -> BriefingPart:
    """The last `count` lines as a list, oldest first, with what was left out said above them."""
    left = max(0, len(lines) - count)
    shown = [f"- {line}" for line in lines[left:]]
    return cut_above(shown, f"{left} older {what}" if left else "")


def largest(lines: Sequence[str], count: int, what: str) -> BriefingPart:
    """The first `count` lines as a list, with what was left out said below them."""
    shown, left = [f"- {line}" for line in lines[:count]], max(0, len(lines) - count)
    if not left:
        return BriefingPart("\n".join(shown))
    cut = f"{left} smaller {what}"
    return BriefingPart("\n".join([*shown, notice(cut)]), (cut,))


def cut_above(shown: Sequence[str], cut: str) -> BriefingPart:
    """Lines below the notice of what was cut; no notice where nothing was."""
    return BriefingPart("\n".join([notice(cut), *shown]), (cut,)) if cut else BriefingPart("\n".join(shown))


def notice(cut: str) -> str:
    """How a cut is written where it happened."""
    return f"[cut: {cut}]"
