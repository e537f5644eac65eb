"""Text that a model, a program or a file wrote, made fit for a Discord message: it shows as it is and does nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from pydantic import SecretStr

_MARKDOWN = re.compile(r"([\\`*_~|<\[\]]|^[#>-])")
_MENTION_SIGN = re.compile(r"@(?=\S)")
_MENTION = re.compile(r"@(?=everyone|here|[&!]?\d)")
_LINK = re.compile(r"(?<=[A-Za-z])://")
_ZERO_WIDTH_SPACE = "\u200b"
"""Zero-width space: a reader does not see it, and Discord sees no mention and no link."""
_INPUT_LIMIT_FACTOR = 8
"""Of a text so many times its limit is looked at: some of it will not be seen, and it may be huge."""
_REDACTED = "[hidden]"
_MIN_SECRET_CHARACTERS, _MIN_PART_CHARACTERS = 8, 12


def plain(text: str, limit: int = 300) -> str:
    """One line of foreign text, at most `limit` long before escaping: no markup, mention, link or control character."""
    shown = clip(_visible(text[: _INPUT_LIMIT_FACTOR * limit]), limit)
    return _LINK.sub(
        f":{_ZERO_WIDTH_SPACE}//", _MENTION_SIGN.sub(f"@{_ZERO_WIDTH_SPACE}", _MARKDOWN.sub(r"\\\1", shown))
    )


def code(text: str, limit: int = 300) -> str:
    """Text in a code span, to be copied as it is; nothing in it is markup."""
    shown = _MENTION.sub(
        f"@{_ZERO_WIDTH_SPACE}", clip(_visible(text[: _INPUT_LIMIT_FACTOR * limit]).replace("`", "'"), limit)
    )
    return f"`{shown}`" if shown else ""


def clip(text: str, limit: int) -> str:
    """At most `limit` units, as Discord counts them (UTF-16), with an ellipsis where something is missing."""
    if units(text) <= limit:
        return text
    kept = text.encode("utf-16-le", "surrogatepass")[: 2 * (limit - 1)].decode("utf-16-le", "ignore")
    bare = kept.rstrip("\\")
    kept = bare + "\\" * (2 * ((len(kept) - len(bare)) // 2))  # half an escape would swallow the ellipsis
    return f"{kept}…"


def redact(text: str, secrets: Iterable[SecretStr]) -> str:
    """The text without any of the secrets, nor the tail of a secret address, in whatever way they got in."""
    for secret in secrets:
        for needle in _secret_parts(secret.get_secret_value()):
            text = text.replace(needle, _REDACTED)
    return text


def _secret_parts(secret: str) -> list[str]:
    """A secret, and its parts where it is an address, longest first."""
    path = secret.partition("://")[2].partition("/")[2]
    parts = [part for part in path.replace("?", "/").split("/") if len(part) >= _MIN_PART_CHARACTERS]
    wholes = [whole for whole in (secret, path) if len(whole) >= _MIN_SECRET_CHARACTERS]
    return sorted({*wholes, *parts}, key=len, reverse=True)


def _visible(text: str) -> str:
    """Without control, format and unassigned characters; blanks of any kind and number become one."""
    spaced = "".join(" " if char.isspace() else char for char in text)
    return " ".join("".join(char for char in spaced if unicodedata.category(char)[0] != "C").split())


def units(text: str) -> int:
    """Its length in UTF-16 units, the largest of the ways in which Discord may count."""
    return len(text) + sum(ord(char) > 0xFFFF for char in text)
