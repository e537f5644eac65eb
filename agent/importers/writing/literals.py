"""Python literals as text, with double quotes and lines that end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 108


def literal(value: Any, indent: int = 0, used: int = 0) -> str:
    """The text of numbers, words, tuples, lists and dicts; `used` characters stand before it on its line."""
    flat = _flat(value)
    if indent + used + len(flat) <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return flat
    start, end = "{}" if isinstance(value, Mapping) else "[]" if isinstance(value, list) else "()"
    inner = " " * (indent + 4)
    return f"{start}\n{''.join(f'{inner}{part},{chr(10)}' for part in _parts(value, indent + 4))}{' ' * indent}{end}"


def _parts(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            before = f"{_flat(key)}: "
            yield before + literal(part, indent, len(before))
    else:
        yield from (literal(part, indent) for part in value)


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(key)}: {_flat(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
