"""Example arguments as a person types them: x=float32[4096,1024], or eps=1e-5."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from hillclimb.harness.channel.dtypes import ITEM_BYTES
from hillclimb.harness.errors import UsageError

ARRAY = re.compile(r"([a-z]\w*)\[([\d,\s]*)\]")
SHOWN = "write it as x=float32[4096,1024] or eps=1e-5"


def parse_examples(texts: Sequence[str], parameters: Sequence[str]) -> list[Any]:
    """Of each argument [name, dtype, shape], or [name, value] of a number or word. Raises UsageError."""
    found = [_parse(text) for text in texts]
    names = [name for name, *_ in found]
    for name in names:
        if name not in parameters or names.count(name) > 1:
            raise UsageError(f"--example {name!r}: name each of {', '.join(parameters)} at most once")
    return found


def _parse(text: str) -> list[Any]:
    name, separator, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not separator or not name.isidentifier():
        raise UsageError(f"--example {text!r} has no name and value; {SHOWN}")
    array = ARRAY.fullmatch(value)
    if array is None:
        return [name, _number(text, value)]
    shape = [int(size) for size in array[2].replace(" ", "").split(",") if size]
    if array[1] not in ITEM_BYTES or array[1].startswith("complex") or not shape or 0 in shape:
        raise UsageError(
            f"--example {text!r}: no array of {array[1]} with such a shape can be drawn; {SHOWN}"
        )
    return [name, array[1], shape]


def _number(text: str, value: str) -> Any:
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        found = ...
    if not isinstance(found, bool | int | float | str | None):
        raise UsageError(f"--example {text!r} is no array and no number; {SHOWN}")
    return found
