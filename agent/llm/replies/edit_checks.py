"""What can be said against edits before anything runs: their size, their syntax, code left out, broken knobs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from hillclimb.agent.llm.replies.reply_error import ReplyError, clip
from hillclimb.agent.proposal import Edit
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, parse_knobs
from hillclimb.harness.wording import count

MAX_FILES, MAX_FILE_BYTES, MAX_TOTAL_BYTES = 64, 1 << 20, 4 << 20
"""Files of one proposal, bytes of one, and bytes of all."""
MAX_KNOBS_BYTES = 1 << 17
"""Bytes of knobs.yaml: YAML is read a thousand times slower than Python."""
MAX_BRACKETS = 256
"""Lists and mappings in brackets of one YAML file; the time to read nested ones grows with the depth's square."""

_ELISION = re.compile(
    r"[\s#/*;<!-]{0,12}[(\[{]?(?:\.\.\.|…)[\s#/*.…-]{0,8}[(\[{]?(?=[^\n]{0,80}"
    r"\b(?:existing|unchanged|rest of|remains?|remaining|same as|omitted|previous|as before|as it was|other code)\b)",
    re.IGNORECASE,
)


class InapplicableChange(ReplyError):
    """Changes that cannot be made to the files; the message tells the model what is wrong and what to do."""


def check_edits(edits: Sequence[Edit], files: Mapping[str, str]) -> None:
    """Raises InapplicableChange for the first thing that is wrong with edits of these files."""
    _refuse_excess(edits)
    for edit in edits:
        if edit.content is not None:
            _refuse_elisions(edit.path, edit.content, files.get(edit.path, ""))
            _refuse_syntax(edit.path, edit.content)


def is_small_yaml(text: str) -> bool:
    """Whether YAML is short and flat enough to be read at once."""
    return len(text) <= MAX_KNOBS_BYTES and text.count("[") + text.count("{") <= MAX_BRACKETS


def find_anchor(text: str) -> tuple[int, str] | None:
    """Line and spelling of the first YAML anchor or alias of a text; None where it has none, or is no YAML."""
    if "&" not in text and "*" not in text:
        return None
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            anchor, place = getattr(event, "anchor", None), event.start_mark
            if anchor and place:
                mark = "*" if isinstance(event, yaml.AliasEvent) else "&"
                return place.line + 1, f"{mark}{anchor}"
    except (yaml.YAMLError, ValueError, RecursionError):
        return None  # what is wrong with it, the parser of knobs says better
    return None


def is_elision(line: str) -> bool:
    """Whether a line stands for others, such as `# ... existing code ...`."""
    return ("..." in line or "…" in line) and bool(_ELISION.match(line))


def _refuse_excess(edits: Sequence[Edit]) -> None:
    if len(edits) > MAX_FILES:
        raise InapplicableChange(f"{len(edits)} files change, and at most {MAX_FILES} may; change fewer.")
    sizes = {edit.path: len((edit.content or "").encode(errors="surrogatepass")) for edit in edits}
    limits = {path: MAX_KNOBS_BYTES if path == KNOBS_FILE else MAX_FILE_BYTES for path in sizes}
    for path, size in sizes.items():
        if size > limits[path]:
            raise InapplicableChange(
                f"{clip(path)} would have {count(size, 'byte')}, and at most {limits[path]} may be; shorten it."
            )
    if sum(sizes.values()) > MAX_TOTAL_BYTES:
        raise InapplicableChange(
            f"the changed files would have {sum(sizes.values())} bytes in all, and at most {MAX_TOTAL_BYTES} may be."
        )


def _refuse_elisions(path: str, content: str, before: str) -> None:
    """A line that stands for code left out would lose that code."""
    known: Collection[str] = set(before.split("\n")) if "..." in content or "…" in content else ()
    for number, line in enumerate(content.split("\n"), 1):
        if line not in known and is_elision(line):
            raise InapplicableChange(
                f"{clip(path)}, line {number} of the result, stands for code that is left out ({_cut(line)!r}); write "
                "all lines, or change only some of them with SEARCH/REPLACE blocks."
            )


def _refuse_syntax(path: str, content: str) -> None:
    if "\0" in content:
        raise InapplicableChange(f"{clip(path)} would hold a NUL character; write it as an escape.")
    if path.endswith(".py"):
        _refuse_python(path, content)
    if path == KNOBS_FILE:
        _refuse_knobs(content)


def _refuse_knobs(content: str) -> None:
    if not is_small_yaml(content):
        raise InapplicableChange(
            f"{KNOBS_FILE} would have more than {MAX_BRACKETS} opening brackets; write it as indented lines."
        )
    if found := find_anchor(content):
        line, mark = found
        raise InapplicableChange(
            f"{KNOBS_FILE}, line {line} of the result, has {_cut(mark)}: YAML anchors (&) and aliases (*) may not "
            "be used there; write each knob out in full."
        )
    try:
        parse_knobs(content, Path(KNOBS_FILE))
    except CaseError as error:
        raise InapplicableChange(f"the knobs would not load: {error}") from None


def _refuse_python(path: str, content: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
    except SyntaxError as error:
        raise InapplicableChange(_spell(path, content, error)) from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        said = str(error) or "an expression is nested too deeply"
        raise InapplicableChange(
            f"{clip(path)} is no Python that can be parsed: {said}; write it flatter."
        ) from None


def _spell(path: str, content: str, error: SyntaxError) -> str:
    line = error.lineno or 0
    lines = content.split("\n")
    shown = f": {_cut(lines[line - 1])!r}" if 0 < line <= len(lines) else ""
    return f"{clip(path)} would not be Python: line {line}{shown}: {_cut(error.msg)}; mend it there."


def _cut(line: str) -> str:
    return clip(line.strip(), 120)


def listed(names: Iterable[str], most: int = 30) -> str:
    """Names as a sentence shows them."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(clip, names[:most])) + more if names else "none"
