"""A three-way merge of knobs.yaml by knob, since a line's neighbours are often other knobs, which do not matter to it.

Each knob's own lines are taken from the side that changed them, and a default that one side turned is put into
what the other made of the knob. The order and all comments come from a merge of the lines around the knobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from hillclimb.agent.llm.replies.edit_checks import find_anchor, is_small_yaml
from hillclimb.agent.llm.replies.git import merge_file
from hillclimb.agent.llm.replies.matching import to_lines
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    Knob,
    Knobs,
    contains,
    parse_declarations,
    replace_defaults,
)


class _KnobConflict(Exception):
    """These texts cannot be merged by knob."""


@dataclass(frozen=True)
class _KnobBlock:
    """One knob's lines."""

    head: str
    """The comments directly above it, and the blank lines above those."""
    body: str
    knob: Knob


@dataclass(frozen=True)
class _KnobsDocument:
    """A knobs.yaml in parts."""

    blocks: Mapping[str, _KnobBlock]
    skeleton: str
    """Its lines in order, where each passage is a line that is the knob's name."""


def merge_knobs(base: str, proposed: str, ours: str) -> str | None:
    """The merged text of a knobs.yaml, which loads; None where it cannot be merged by knob."""
    try:
        was, theirs, mine = (_read(text) for text in (base, proposed, ours))
        names = {*was.blocks, *theirs.blocks, *mine.blocks}
        chosen = {
            name: _choose(name, *(declared.blocks.get(name) for declared in (was, theirs, mine)))
            for name in names
        }
        kept = {name: passage for name, passage in chosen.items() if passage}
        merged = _write(_merge_union(was.skeleton, theirs.skeleton, mine.skeleton), kept, names)
        wanted = {name: passage.knob for name, passage in kept.items()}
        return merged if _load(merged) == wanted else None
    except (_KnobConflict, CaseError):
        return None


def _read(text: str) -> _KnobsDocument:
    """The parts of a text that loads. Raises _Contested or CaseError."""
    if not is_small_yaml(text) or find_anchor(text):
        raise _KnobConflict
    knobs, lines, passages = _load(text), to_lines(text), {}
    starts = _starts(text)
    frame: list[str] = []
    after = 0
    for (name, start), end in zip(starts.items(), [*list(starts.values())[1:], len(lines)], strict=True):
        top = _top(lines, after, start)
        frame += [*lines[after:top], name]
        after = _bottom(lines, start, end)
        body = _joined(lines[start:after])
        if _load(body) != {name: knobs[name]}:
            raise _KnobConflict  # something in it began elsewhere
        passages[name] = _KnobBlock(_joined(lines[top:start]), body, knobs[name])
    return _KnobsDocument(passages, _joined([*frame, *lines[after:]]))


def _load(text: str) -> Knobs:
    return parse_declarations(text, Path(KNOBS_FILE))


def _starts(text: str) -> dict[str, int]:
    """The line that each knob begins in. Raises _Contested where two may share one."""
    document = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(document, yaml.MappingNode):
        return {}
    places = {key.value: key.start_mark.index for key, _ in document.value}
    if document.flow_style or any(index and text[index - 1] != "\n" for index in places.values()):
        raise _KnobConflict
    return {name: text.count("\n", 0, index) for name, index in places.items()}


def _top(lines: list[str], after: int, start: int) -> int:
    """The first line of what stands directly above line `start`: comments, and blanks above those."""
    while start > after and lines[start - 1].startswith("#"):
        start -= 1
    while start > after and not lines[start - 1].strip():
        start -= 1
    return start


def _bottom(lines: list[str], start: int, end: int) -> int:
    """The line after a knob's last; blanks and comments at the margin are no part of it."""
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _choose(
    name: str, base: _KnobBlock | None, theirs: _KnobBlock | None, ours: _KnobBlock | None
) -> _KnobBlock | None:
    """One knob as it comes out; None where it is gone. Raises _Contested."""
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    if base is None or theirs is None or ours is None:
        raise _KnobConflict
    head = _merge_union(base.head, theirs.head, ours.head)
    return replace(_choose_body(name, base, theirs, ours), head=head)


def _choose_body(name: str, base: _KnobBlock, theirs: _KnobBlock, ours: _KnobBlock) -> _KnobBlock:
    if theirs.body in (base.body, ours.body):
        return ours
    if ours.body == base.body:
        return theirs
    theirs_is_a_turn, ours_is_a_turn = (
        _changes_only_default(name, base, theirs),
        _changes_only_default(name, base, ours),
    )
    if ours_is_a_turn and not theirs_is_a_turn:
        return _with_default_of(name, theirs, ours)
    if theirs_is_a_turn and not ours_is_a_turn and ours.knob.default == base.knob.default:
        return _with_default_of(name, ours, theirs)
    raise _KnobConflict


def _changes_only_default(name: str, base: _KnobBlock, side: _KnobBlock) -> bool:
    """Whether a side changed the default alone."""
    values = {name: side.knob.default}
    return replace_defaults(base.body, values) == replace_defaults(side.body, values)


def _with_default_of(name: str, block: _KnobBlock, other: _KnobBlock) -> _KnobBlock:
    """A passage with the other's default. Raises _Contested where that is outside its domain."""
    value = other.knob.default
    if not contains(block.knob, value):
        raise _KnobConflict
    knob = block.knob.model_copy(update={"default": value})
    return replace(block, body=replace_defaults(block.body, {name: value}), knob=knob)


def _merge_union(base: str, theirs: str, ours: str) -> str:
    """Merged lines; where both sides changed the same, ours and then theirs."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else merge_file(base, theirs, ours, "--union")[0]


def _write(frame: str, passages: Mapping[str, _KnobBlock], names: set[str]) -> str:
    """The frame with each passage once, where its name first stands."""
    left, parts = dict(passages), []
    for line in to_lines(frame):
        if line not in names:
            parts.append(f"{line}\n")
        elif passage := left.pop(line, None):
            parts.append(passage.head + passage.body)
    return "".join(parts)


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
