"""From a reply to a proposal: read, applied to the files it was made for, carried over to the present incumbent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.git.edits import why_forbidden, why_inapplicable
from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.replies.edit_checks import check_edits
from hillclimb.agent.llm.replies.fingerprint import fingerprint
from hillclimb.agent.llm.replies.merging import MergeConflict, merge
from hillclimb.agent.llm.replies.patching import InapplicableChange, apply, knob_values
from hillclimb.agent.llm.replies.replies import ParsedReply, UnreadableReply, read_reply
from hillclimb.agent.llm.replies.reply_error import ReplyError
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, Knobs, KnobValue, parse_knobs, replace_defaults


class UnusableReply(ReplyError):
    """A reply that cannot be read or applied; the message is for the model."""


@dataclass(frozen=True)
class UsableReply:
    """A reply that can be applied to the files it was made for."""

    answer: ParsedReply
    edits: tuple[Edit, ...]
    knobs: Mapping[str, KnobValue]


def parse_usable_reply(text: str, files: Mapping[str, str], *, mutable: Sequence[str] = ()) -> UsableReply:
    """Raises UnusableReply with the exact trouble.

    `mutable` are the globs of paths that may change; with none, any may.
    """
    try:
        answer = read_reply(text)
        edits = _judged(apply(answer.changes, files)) if answer.changes else ()
        knobs = knob_values(answer.knobs, read_knobs(apply_edits(files, edits)))
    except (UnreadableReply, InapplicableChange) as error:
        raise UnusableReply(str(error)) from None
    _refuse_paths(edits, mutable, files)
    if not edits and not knobs:
        raise UnusableReply(
            "it changes nothing that is judged: docs/ is kept by the climb, say NOTE: instead"
        )
    return UsableReply(answer, edits, knobs)


def to_proposal(reading: UsableReply, call: int, base: Mapping[str, str], now: Mapping[str, str]) -> Proposal:
    """The proposal on today's incumbent. Raises MergeConflict where it does not fit any more."""
    edits = reading.edits if base == now else merge(base, apply_edits(base, reading.edits), now)
    after = apply_edits(now, edits)
    try:
        check_edits(edits, now)  # two sound sides may merge into a file that is none
        knobs = knob_values(reading.answer.knobs, read_knobs(after))
    except InapplicableChange as error:
        raise MergeConflict(str(error)) from None
    if not edits and not knobs:
        raise MergeConflict("the incumbent has all of it by now")
    return Proposal(
        author="llm",
        idea=reading.answer.idea,
        family=reading.answer.family,
        edits=edits,
        knobs=knobs,
        call=call,
        fingerprint=fingerprint(_promoted(after, knobs)),
    )


def apply_edits(files: Mapping[str, str], edits: tuple[Edit, ...]) -> dict[str, str]:
    """The files with the edits made."""
    after = {**files, **{edit.path: edit.content for edit in edits if edit.content is not None}}
    gone = {edit.path for edit in edits if edit.content is None}
    return {path: text for path, text in after.items() if path not in gone}


def read_knobs(files: Mapping[str, str]) -> Knobs:
    """The knobs that the files declare. Raises InapplicableChange where they cannot be read."""
    if KNOBS_FILE not in files:
        return {}
    try:
        return parse_knobs(files[KNOBS_FILE], Path(KNOBS_FILE))
    except CaseError as error:
        raise InapplicableChange(str(error)) from None


def _refuse_paths(edits: tuple[Edit, ...], mutable: Sequence[str], existing: Collection[str]) -> None:
    """What the lab would refuse of a proposal is told to the model while it can still mend it."""
    forbidden = why_forbidden(edits, mutable, existing) if mutable else None
    if trouble := forbidden or why_inapplicable(edits, existing):
        raise UnusableReply(f"these edits may not be made: {trouble}")


def _promoted(files: dict[str, str], knobs: Mapping[str, KnobValue]) -> dict[str, str]:
    return {**files, KNOBS_FILE: replace_defaults(files[KNOBS_FILE], knobs)} if knobs else files


def _judged(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tuple(edit for edit in edits if is_judged(edit.path))
