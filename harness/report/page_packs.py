"""Data inside the page: JSON that cannot end its script element, and packs that the browser inflates when asked."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FACTS_A_PACK = 100
DIFF_PACK_BYTES = 96 << 10
"""Of text in one pack of diffs: what the browser inflates to show one of them."""
MAX_DIFFS_BYTES = 7 << 20
"""Bytes of all packed diffs in the page."""

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


@dataclass(frozen=True)
class Diff:
    """What a candidate changes."""

    text: str
    """A unified diff; empty where there is none."""
    note: str = ""
    """What a reader must know: cut, gone, not a diff but the proposed files."""
    is_win: bool = False
    """A win's: it goes into the page before all others."""


@dataclass(frozen=True)
class Packs:
    """Packed texts by element id, and where each candidate's lie."""

    elements: dict[str, str]
    places: list[list[int]]
    """Candidates of each pack, in pack order."""


def embed(value: Any) -> str:
    """JSON for a script element: no `<`, `>`, `&` or line separator is left as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def pack_facts(facts: Mapping[int, Any]) -> Packs:
    """Every candidate's details, in packs of neighbours."""
    numbers = sorted(facts)
    places = [numbers[at : at + FACTS_A_PACK] for at in range(0, len(numbers), FACTS_A_PACK)]
    elements = {f"facts-{at}": _pack({n: facts[n] for n in group}) for at, group in enumerate(places)}
    return Packs(elements, places)


def pack_diffs(diffs: Mapping[int, Diff], most: int = MAX_DIFFS_BYTES) -> Packs:
    """Diffs of wins first, then the newest, until `most` bytes are used; what does not fit is left out."""
    order = sorted(diffs, key=lambda n: (not diffs[n].is_win, -n))
    elements: dict[str, str] = {}
    places: list[list[int]] = []
    used = 0
    for group in _groups(order, diffs):
        packed = _pack({n: [diffs[n].text, diffs[n].note] for n in group})
        used += len(packed)
        if used > most:
            break
        elements[f"diffs-{len(places)}"] = packed
        places.append(group)
    return Packs(elements, places)


def _groups(order: Iterable[int], diffs: Mapping[int, Diff]) -> Iterator[list[int]]:
    group, size = list[int](), 0
    for n in order:
        group.append(n)
        size += len(diffs[n].text)
        if size >= DIFF_PACK_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _pack(value: Any) -> str:
    """zlib, as DecompressionStream("deflate") reads it, in base64."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(raw.encode(errors="replace"), 6)).decode()
