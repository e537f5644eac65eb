"""Text that others wrote, put before a model as data: cleaned, on one line or in a fence that it cannot close."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

from hillclimb.harness.wording import count

REPLACEMENT_CHARACTER = "\ufffd"

_SUSPECT = re.compile(r"[^\x20-\x7e\n\t]")
_TICKS = re.compile(r"`+")
_LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".md": "markdown",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".json": "json",
}
_HEAD = re.compile(
    r"\s*(async def|def|class|@|from|import|__global__|__device__|template|struct|#include)\b|@"
)
_MAX_OUTLINE_LINE_CHARS = 200


def clean(text: str) -> str:
    """Line ends as \\n, and every control, invisible or lone surrogate character replaced."""
    return _SUSPECT.sub(_replace, text.replace("\r\n", "\n"))


def quoted(text: str, longest: int = 200) -> str:
    """One line in double quotes, whatever it was: it can begin no section, list or fence, nor end its quotes."""
    line = " ".join(clean(text).split()).replace('"', "'")
    return f'"{line}"' if len(line) <= longest else f'"{line[: longest - 1]}…"'


def fenced(text: str, language: str = "text") -> str:
    """A block of lines in a fence longer than any run of backticks inside it."""
    text = clean(text)
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{fence}"


def language(path: str) -> str:
    """What a fence around this file is marked with."""
    return _LANGUAGES.get(PurePosixPath(path).suffix, "text")


def clip_middle(text: str, longest: int) -> tuple[str, int]:
    """A text with its middle taken out where it is too long, and how many characters that took.

    The end of a traceback says more than its beginning, so two thirds of what stays are the end.
    """
    text = clean(text)
    if len(text) <= longest:
        return text, 0
    head, tail = longest // 3, longest - longest // 3
    lost = len(text) - head - tail
    return f"{text[:head]}\n[cut: {count(lost, 'character')}]\n{text[-tail:]}", lost


def outline(text: str, most: int = 60) -> tuple[str, int]:
    """The lines that say what a file is made of, with a mark for those between; and how many lines were left out.

    Kept are imports, definitions, decorators, and what stands at the margin. Files without such lines are
    shown by their beginning.
    """
    lines = clean(text).splitlines()
    heads = [i for i, line in enumerate(lines) if _HEAD.match(line) or re.match(r"[A-Za-z_]", line)]
    kept = (heads or list(range(len(lines))))[:most]
    shown: list[str] = []
    for previous, index in zip([-1, *kept], [*kept, len(lines)], strict=True):
        if index - previous > 1:
            shown.append(f"    [{count(index - previous - 1, 'line')} not shown]")
        if index < len(lines):
            shown.append(lines[index][:_MAX_OUTLINE_LINE_CHARS])
    return "\n".join(shown), len(lines) - len(kept)


def _replace(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() or unicodedata.category(char) == "Zs" else REPLACEMENT_CHARACTER
