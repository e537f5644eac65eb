"""From a reply to a proposal: read, applied to the files it was made for, carried over to the present incumbent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.edits import why_forbidden, why_inapplicable
from agent.proposal import Edit, Proposal
from agent.replies.complaints import Complaint
from agent.replies.fingerprint import fingerprint
from agent.replies.merging import Conflict, merge
from agent.replies.patching import DoesNotApply, apply, knob_values
from agent.replies.replies import Answer, Unreadable, read_reply
from agent.replies.vetting import vet
from agent.trees import is_judged
from harness.case.knobs import KNOBS_FILE, Knobs, Value, parse_knobs, with_defaults
from harness.errors import CaseError


class Unusable(Complaint):
    """A reply that cannot be read or applied; the message is for the model."""


@dataclass(frozen=True)
class Reading:
    """A reply that can be applied to the files it was made for."""

    answer: Answer
    edits: tuple[Edit, ...]
    knobs: Mapping[str, Value]


def read(text: str, files: Mapping[str, str], *, mutable: Sequence[str] = ()) -> Reading:
    """Raises Unusable with the exact trouble.

    `mutable` are the globs of paths that may change; with none, any may.
    """
    try:
        answer = read_reply(text)
        edits = _judged(apply(answer.changes, files)) if answer.changes else ()
        knobs = knob_values(answer.knobs, read_knobs(edited(files, edits)))
    except (Unreadable, DoesNotApply) as error:
        raise Unusable(str(error)) from None
    _refuse_paths(edits, mutable, files)
    if not edits and not knobs:
        raise Unusable("it changes nothing that is judged: docs/ is kept by the climb, say NOTE: instead")
    return Reading(answer, edits, knobs)


def to_proposal(reading: Reading, call: int, base: Mapping[str, str], now: Mapping[str, str]) -> Proposal:
    """The proposal on today's incumbent. Raises agent.replies.merging.Conflict where it does not fit any more."""
    edits = reading.edits if base == now else merge(base, edited(base, reading.edits), now)
    after = edited(now, edits)
    try:
        vet(edits, now)  # two sound sides may merge into a file that is none
        knobs = knob_values(reading.answer.knobs, read_knobs(after))
    except DoesNotApply as error:
        raise Conflict(str(error)) from None
    if not edits and not knobs:
        raise Conflict("the incumbent has all of it by now")
    return Proposal(
        author="llm",
        idea=reading.answer.idea,
        family=reading.answer.family,
        edits=edits,
        knobs=knobs,
        call=call,
        fingerprint=fingerprint(_promoted(after, knobs)),
    )


def edited(files: Mapping[str, str], edits: tuple[Edit, ...]) -> dict[str, str]:
    """The files with the edits made."""
    after = {**files, **{edit.path: edit.content for edit in edits if edit.content is not None}}
    gone = {edit.path for edit in edits if edit.content is None}
    return {path: text for path, text in after.items() if path not in gone}


def read_knobs(files: Mapping[str, str]) -> Knobs:
    """The knobs that the files declare. Raises DoesNotApply where they cannot be read."""
    if KNOBS_FILE not in files:
        return {}
    try:
        return parse_knobs(files[KNOBS_FILE], Path(KNOBS_FILE))
    except CaseError as error:
        raise DoesNotApply(str(error)) from None


def _refuse_paths(edits: tuple[Edit, ...], mutable: Sequence[str], existing: Collection[str]) -> None:
    """What the lab would refuse of a proposal is told to the model while it can still mend it."""
    forbidden = why_forbidden(edits, mutable, existing) if mutable else None
    if trouble := forbidden or why_inapplicable(edits, existing):
        raise Unusable(f"these edits may not be made: {trouble}")


def _promoted(files: dict[str, str], knobs: Mapping[str, Value]) -> dict[str, str]:
    return {**files, KNOBS_FILE: with_defaults(files[KNOBS_FILE], knobs)} if knobs else files


def _judged(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tuple(edit for edit in edits if is_judged(edit.path))
