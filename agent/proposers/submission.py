"""The hand: the one proposal that a person or a coding agent brings, and then no more.

The proposal is exactly what the tree they bring has otherwise than the run's incumbent. Where knobs.yaml differs in
nothing but defaults, those become knob values, as the sweep proposes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hillclimb.agent.git.repository import EXECUTABLE, REGULAR
from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.git.version import File, Version, changed_defaults
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.trailers import to_one_line
from hillclimb.agent.rhythm.notes_files import CANDIDATES_FILE, NOTES_FILE, NOTES_MARKER
from hillclimb.harness.errors import Paused, Plateau, UsageError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    Knobs,
    KnobValue,
    broken_constraint,
    defaults,
    parse_knobs,
    parse_value,
    to_environment,
)

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import FinishedEntry
    from hillclimb.agent.record.ledger import Ledger

_MARKER = NOTES_MARKER.encode()
_MAX_NAMED_FILES = 3
"""Files that an idea nobody put into words names."""


@dataclass(frozen=True)
class Submission:
    """What somebody brings to a run, and how they call it."""

    name: str
    """The tree in words: a path, a revision, the working files."""
    version: Version
    knobs: Sequence[str] = ()
    """`NAME=VALUE`, as typed; they go before the defaults in the tree."""
    author: Literal["human", "agent"] = "human"
    idea: str = ""
    """One line; made from the difference where it is empty."""
    family: str = ""
    identity: str = ""
    """`Name <address>` of the person who made it."""


class SubmissionProposer:
    """Proposes what was brought, once. Raises Paused when asked again, so that the run stays as open as it was."""

    def __init__(
        self,
        submission: Submission,
        read: Callable[[str], Version],
        candidates_before: int,
        ended: FinishedEntry | None = None,
    ) -> None:
        """`read`: commit -> its workspace; `candidates_before`: that the run had when this began; `ended`: how the run
        had come to its own end by then."""
        self._ended = ended
        self._submission, self._read, self._candidates_before = submission, read, candidates_before
        self.n: int | None = None
        """The candidate that it became."""

    def propose(self, ledger: Ledger) -> Proposal:
        """What was brought, against the incumbent as it is now. Raises UsageError where they do not differ.

        A run that was finished is finished again afterwards, for the reason that it had.
        """
        self.n = self.n or self._resumed_candidate(ledger)
        if self.n is not None and self.n <= len(ledger.candidates):
            if self._ended:
                raise Plateau(self._ended.reason)
            raise Paused(f"candidate {self.n} was brought by hand, and no more was asked for")
        proposal = to_proposal(self._submission, self._read(ledger.incumbent))
        self.n = len(ledger.candidates) + 1
        return proposal

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """Those that the run had."""
        return self._ended.importances if self._ended else {}

    def _resumed_candidate(self, ledger: Ledger) -> int | None:
        """The candidate of a call like this one that was killed, and that this session judged to its end."""
        last = ledger.candidates[-1] if ledger.candidates else None
        if last is None or last.judged is None or last.n <= self._candidates_before:
            return None
        with suppress(UsageError):
            if last.proposal == to_proposal(self._submission, self._read(last.judged.parent)):
                return last.n
        return None


def to_proposal(submission: Submission, incumbent: Version) -> Proposal:
    """The difference between what was brought and the incumbent.

    Raises UsageError where there is none, or where a proposal cannot hold it: links, new executables, no text.
    """
    version = _with_docs(submission.version, incumbent)
    turned = changed_defaults(version, incumbent) or {}
    edits = tuple(_edits(version, incumbent, but=KNOBS_FILE if turned else ""))
    wanted = turned | read_knobs(version, submission.knobs)
    source = defaults(_knobs(incumbent if turned else version)) if wanted else {}
    knobs = {name: value for name, value in wanted.items() if source.get(name) != value}
    if not knobs and not any(is_judged(edit.path) for edit in edits):
        raise UsageError(
            f"{submission.name} and the run's incumbent have the same "
            f"files{' but docs/' if edits else ''}, so there is "
            "nothing to judge; change something, or name another tree with --from"
        )
    idea = to_one_line(submission.idea) or _describe(edits, knobs)
    return Proposal(
        author=submission.author,
        idea=idea,
        identity=submission.identity if submission.author == "human" else "",
        family=submission.family,
        edits=edits,
        knobs=knobs,
    )


def read_knobs(version: Version, given: Sequence[str]) -> dict[str, KnobValue]:
    """Knob values as typed, checked against the version's knobs and constraints. Raises UsageError."""
    pairs = [text.partition("=") for text in given]
    wrong = next((name for name, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise UsageError(f"--knob {wrong}: give it as NAME=VALUE")
    knobs = _knobs(version) if pairs else {}
    values = {name: parse_value(knobs, name, text) for name, _, text in pairs}
    if values and (trouble := broken_constraint(knobs, values)):
        raise UsageError(f"--knob: these values are not possible together: {trouble}; choose others")
    return values


def _with_docs(version: Version, incumbent: Version) -> Version:
    """What was brought, with what the climb itself writes below docs/ as the incumbent has it, and nothing removed.

    Somebody who began from an older tree means to take back none of the climb's notes.
    """
    docs = {path: file for path, file in incumbent.items() if not is_judged(path)}
    mine = {path: file for path, file in version.items() if path != CANDIDATES_FILE}
    merged = {**docs, **mine}
    if NOTES_FILE in docs and NOTES_FILE in mine and mine[NOTES_FILE].mode == docs[NOTES_FILE].mode:
        above = mine[NOTES_FILE].content.partition(_MARKER)[0]
        _, marker, below = docs[NOTES_FILE].content.partition(_MARKER)
        merged[NOTES_FILE] = File(docs[NOTES_FILE].mode, above + marker + below)
    return merged


def _knobs(version: Version) -> Knobs:
    file = version.get(KNOBS_FILE)
    return parse_knobs(file.content.decode(errors="replace"), Path(KNOBS_FILE)) if file else {}


def _edits(version: Version, incumbent: Version, but: str) -> Iterator[Edit]:
    for path in sorted({*version, *incumbent} - {but}):
        new, old = version.get(path), incumbent.get(path)
        if new is not None:
            _refuse_file_mode(path, new, old)
        if new is None or old is None or new.content != old.content:
            yield Edit(path=_text(path, path.encode(errors="surrogateescape")), content=_content(path, new))


def _refuse_file_mode(path: str, new: File, old: File | None) -> None:
    was = old.mode if old else REGULAR
    if new.mode == was or new.mode == REGULAR:
        return
    if new.mode == EXECUTABLE:
        raise UsageError(
            f"{path}: is executable and the incumbent's is not; run 'chmod -x' on it, or leave it out"
        )
    raise UsageError(f"{path}: is a link or a submodule, which a workspace may not hold; put a file there")


def _content(path: str, file: File | None) -> str | None:
    return None if file is None else _text(path, file.content)


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(
            f"{path!r}: is not UTF-8 text, and a proposal can hold nothing else; leave it out, or make it in code"
        ) from None


def _describe(edits: Sequence[Edit], knobs: Mapping[str, KnobValue]) -> str:
    """`edits to kernel.py, TILE=64`"""
    names = [edit.path for edit in edits]
    more = [f"{len(names) - _MAX_NAMED_FILES} more files"] if len(names) > _MAX_NAMED_FILES else []
    files = [f"edits to {', '.join(names[:_MAX_NAMED_FILES] + more)}"] if names else []
    return to_one_line(", ".join(files + [f"{name}={text}" for name, text in to_environment(knobs).items()]))
