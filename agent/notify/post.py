"""One post, and the message that Discord gets for it, inside Discord's limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hillclimb.agent.notify.sanitize import clip, units

PostKind = Literal["start", "win", "turn", "trouble", "digest", "end"]

MAX_TITLE_UNITS, MAX_TEXT_UNITS, MAX_FIELDS, MAX_FIELD_NAME_UNITS, MAX_FIELD_VALUE_UNITS, MAX_TOTAL_UNITS = (
    256,
    4096,
    25,
    256,
    1024,
    6000,
)
"""https://discord.com/developers/docs/resources/message#embed-object-embed-limits"""
PICTURE = "progress.png"
MAX_PICTURE_BYTES = 7 << 20
_MAX_INLINE_CHARACTERS = 40
"""A value up to this length shares its line with others."""
_PNG = b"\x89PNG\r\n\x1a\n"
_COLORS: dict[PostKind, int] = {
    "start": 0x3B82F6,
    "win": 0x22C55E,
    "turn": 0x94A3B8,
    "trouble": 0xEF4444,
    "digest": 0xA855F7,
    "end": 0xEAB308,
}


@dataclass(frozen=True)
class Post:
    """Something worth telling. Every text in it is fit to be shown: foreign parts went through `plain` or `code`."""

    kind: PostKind
    time: float
    """Of what it tells, in seconds since the epoch."""
    title: str
    line: str
    """The whole of it in one line, for a digest."""
    text: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    n: int | None = None
    """The candidate that it is about."""
    picture: Path | None = None
    """Attached as it is when the post goes out, where it is there."""


def embed(post: Post, *, pictured: bool = False) -> dict[str, Any]:
    """The post as one Discord embed, never above a limit; fields that do not fit are left out, last first."""
    made: dict[str, Any] = {
        "title": clip(post.title, MAX_TITLE_UNITS),
        "description": clip(post.text, MAX_TEXT_UNITS),
        "color": _COLORS[post.kind],
        "timestamp": _stamp(post.time),
    }
    made["fields"] = _fields(post, MAX_TOTAL_UNITS - units(made["title"]) - units(made["description"]))
    return made | ({"image": {"url": f"attachment://{PICTURE}"}} if pictured else {})


def _stamp(time: float) -> str | None:
    """None for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def _fields(post: Post, left: int) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = []
    for full_name, full_value in post.fields[:MAX_FIELDS]:
        name, value = clip(full_name, MAX_FIELD_NAME_UNITS), clip(full_value, MAX_FIELD_VALUE_UNITS)
        left -= units(name) + units(value)
        if left < 0:
            break
        if value:
            fields.append({"name": name, "value": value, "inline": len(value) <= _MAX_INLINE_CHARACTERS})
    return fields


def read_picture(path: Path | None) -> bytes | None:
    """A whole PNG of a size that Discord takes; None where there is none."""
    if path is None:
        return None
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_PICTURE_BYTES)
    except OSError:
        return None
    return content if len(content) < MAX_PICTURE_BYTES and content.startswith(_PNG) else None
