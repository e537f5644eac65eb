"""docs/candidates.md and docs/notes.md of the workspace: what a person or a model reads to know what is open, what
was tried and what came of it. Both are made from the ledger, so the same ledger writes the same words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from hillclimb.agent.proposal import Edit
from hillclimb.agent.rhythm.families import Family, families, is_edit
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import JudgedEntry
    from hillclimb.agent.record.ledger import Candidate, Ledger

CANDIDATES_FILE, NOTES_FILE = "docs/candidates.md", "docs/notes.md"
NOTES_MARKER = (
    "<!-- below this line the climb keeps its own notes; what stands above it is yours and is left alone -->"
)
MAX_TEXT_CHARS = 200
"""Characters of one idea, note or detail."""
MAX_SECTION_BYTES = 9_000
"""Most of one section: six of them stay below 64 KiB. Older lines make room for newer ones, and a line says so."""
MAX_FAMILIES, MAX_IDEAS_PER_FAMILY = 40, 8
"""Most families that are listed one by one, and most ideas of one of them."""


def refresh(files: Mapping[str, str], ledger: Ledger) -> tuple[Edit, ...]:
    """Both files as they should be; `files` are the workspace's."""
    notes = write_notes(ledger, files.get(NOTES_FILE, ""))
    return (
        Edit(path=CANDIDATES_FILE, content=write_candidates(ledger)),
        Edit(path=NOTES_FILE, content=notes),
    )


def write_candidates(ledger: Ledger) -> str:
    """The written candidate set: families with their figures, ideas not tried yet, ideas that were dropped and why."""
    every = sorted(families(ledger).values(), key=lambda family: (-len(family.candidates), family.name))
    listed = every[:MAX_FAMILIES]
    return _page(
        "Candidate set",
        "Kept by the climb after every win; edits to this file are overwritten.",
        [
            ("Families", [*map(_figures, listed), *_omitted(len(every) - len(listed), "families")]),
            ("Open ideas", _foremost([line for family in listed for line in _open(family)])),
            ("Dropped", _foremost([line for family in listed for line in _dropped(family)])),
        ],
    )


def write_notes(ledger: Ledger, existing: str) -> str:
    """`existing` down to the marker word for word, and below it what the climb has to say."""
    kept = _page(
        "What the climb knows",
        _standing(ledger),
        [
            ("Phases", _newest(list(_phases(ledger)))),
            ("Wins", _newest([_win(candidate) for candidate in ledger.wins])),
            ("What failed", _newest(list(_failures(ledger)))),
            ("Worth remembering", _newest(list(_remembered(ledger)))),
            ("Older wins taken back", _newest(list(_ablations(ledger)))),
        ],
    )
    return f"{_above(existing)}{NOTES_MARKER}\n\n{kept}"


def flatten(text: str, longest: int = MAX_TEXT_CHARS) -> str:
    """One line that can begin neither a section nor a list, whatever a model wrote."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = line.replace("<!--", "< !--").replace("`", "'")
    line = re.sub(r"^(?=[#>+*=|~-])", "\\\\", line)
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _page(title: str, lead: str, sections: Sequence[tuple[str, list[str]]]) -> str:
    parts = [f"# {title}\n\n{lead}\n"]
    for name, lines in sections:
        body = "".join(f"- {line}\n" for line in lines) or "Nothing yet.\n"
        parts.append(f"## {name}\n\n{body}")
    return "\n".join(parts)


def _foremost(lines: list[str]) -> list[str]:
    """The first lines that fit a section, and how many more there are."""
    fitting = _fitting(lines)
    return [*lines[:fitting], *_omitted(len(lines) - fitting, "more lines")]


def _newest(lines: list[str]) -> list[str]:
    """The last lines that fit a section, and how many older ones there are."""
    older = len(lines) - _fitting(lines[::-1])
    return [*_omitted(older, "older lines"), *lines[older:]]


def _fitting(lines: list[str]) -> int:
    sizes = accumulate(len(line.encode()) + 3 for line in lines)
    return sum(1 for size in sizes if size <= MAX_SECTION_BYTES)


def _omitted(count: int, what: str) -> list[str]:
    return [f"({count} {what} left out)"] if count > 0 else []


def _above(existing: str) -> str:
    """What stands above the marker, with what it takes for the marker to begin a line."""
    lines = existing.splitlines(keepends=True)
    mine = next((i for i, line in enumerate(lines) if line.strip() == NOTES_MARKER), len(lines))
    above = "".join(lines[:mine])
    return above if not above or above.endswith("\n") else above + "\n"


def _name(family: Family) -> str:
    return family.name or "(no family named)"


def _figures(family: Family) -> str:
    tried, best = len(family.candidates), family.best
    found = f"{_name(family)}: {tried} tried, {len(family.kept)} kept"
    largest = f", best {_speedup(best)} (#{best.n})" if best else ""
    return f"{found}{largest}, {len(family.open_ideas)} ideas open"


def _open(family: Family) -> Iterator[str]:
    yield from (f"{_name(family)}: {flatten(idea)}" for idea in family.open_ideas[-MAX_IDEAS_PER_FAMILY:])


def _dropped(family: Family) -> Iterator[str]:
    lost = [candidate for candidate in family.candidates if candidate.judged and not candidate.judged.kept]
    for candidate in lost[-MAX_IDEAS_PER_FAMILY:]:
        yield f"{_name(family)}: {_told(candidate)}"


def _told(candidate: Candidate) -> str:
    return f"#{candidate.n} {flatten(candidate.proposal.idea)}: {_verdict(candidate.judged)}"


def _verdict(judged: JudgedEntry | None) -> str:
    if judged is None:
        return "under way"
    seen = judged.estimate
    figure = f" ({seen})" if seen else ""
    said = judged.detail.strip().splitlines()[-1:] if not seen else []  # a traceback's last line says it
    detail = "".join(f", {flatten(line)}" for line in said)
    return "kept" + figure if judged.kept else f"{judged.reason}{figure}{detail}"


def _speedup(candidate: Candidate) -> str:
    judged = candidate.judged
    return str(judged.speedup) if judged and judged.speedup else "not measured"


def _standing(ledger: Ledger) -> str:
    return (
        f"{count(ledger.judged, 'candidate')} judged, {len(ledger.wins)} kept; "
        f"{ledger.cumulative:.3f}x over the baseline; {ledger.candidates_since_win} since the last win."
    )


def _phases(ledger: Ledger) -> Iterator[str]:
    ends = [turn.n - 1 for turn in ledger.turns[1:]] + [ledger.judged]
    for turn, last in zip(ledger.turns, ends, strict=False):
        inside = ledger.candidates[turn.n - 1 : max(last, turn.n - 1)]
        wins = sum(1 for candidate in inside if candidate.judged and candidate.judged.kept)
        about = f" on {flatten(turn.family)}" if turn.family else ""
        came = f"{len(inside)} judged, {wins} kept"
        yield f"from #{turn.n}, {turn.phase}{about}: {came}. Begun because {flatten(turn.reason)}"


def _win(candidate: Candidate) -> str:
    judged, proposal = candidate.judged, candidate.proposal
    total = f", {judged.cumulative} over the baseline" if judged and judged.cumulative else ""
    family = f" [{flatten(proposal.family)}]" if proposal.family else ""
    what = f"#{candidate.n} {proposal.author}{family}: {flatten(proposal.idea)}"
    return f"{what}: {_speedup(candidate)}{total}"


def _failures(ledger: Ledger) -> Iterator[str]:
    """Per family, the sorts of rejection with their counts and the last of each; the sweep is one family here."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in ledger.candidates:
        if candidate.judged and not candidate.judged.kept and candidate.proposal.undoes is None:
            about = flatten(candidate.proposal.family) or "(no family named)"
            groups.setdefault(about if is_edit(candidate) else "the sweep", []).append(candidate)
    ordered = sorted(groups.items(), key=lambda item: item[1][-1].n)
    for about, lost in ordered[-MAX_FAMILIES:]:
        yield f"{about}: {', '.join(_counts(lost))}; last {_told(lost[-1])}"


def _counts(lost: Iterable[Candidate]) -> list[str]:
    counts: dict[str, int] = {}
    for candidate in lost:
        reason = str(candidate.judged.reason) if candidate.judged else ""
        counts[reason] = counts.get(reason, 0) + 1
    return [
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _remembered(ledger: Ledger) -> Iterator[str]:
    notes = [flatten(line) for call in ledger.calls for line in call.note.splitlines()]
    latest = dict.fromkeys(note for note in reversed(notes) if note)
    yield from reversed(latest)


def _ablations(ledger: Ledger) -> Iterator[str]:
    for candidate in ledger.candidates:
        if candidate.proposal.undoes is not None and candidate.judged:
            yield f"without #{candidate.proposal.undoes}: {_told(candidate)}"
