"""Takes secrets out of texts that come from outside."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from hillclimb.agent.llm.client.settings import ModelSettings

MAX_LINE_CHARS = 500
"""Characters of a line."""
MIN_REPLY_SECRET_CHARS = 8
"""A shorter secret (EMPTY, ollama) may well be a word of a reply, and is left in there."""
MIN_SECRET_CHARS = 4
"""Anything shorter is no secret."""
MASK = "[secret]"


class Scrubber:
    """Knows the secrets of one endpoint, in every form in which a server may echo them."""

    def __init__(self, settings: ModelSettings) -> None:
        secrets = _secrets(settings)
        self._every = _pattern(secrets, MIN_SECRET_CHARS)
        self._long = _pattern(secrets, MIN_REPLY_SECRET_CHARS)

    def scrub_line(self, text: str) -> str:
        """One printable line of at most MOST characters, for people and records."""
        clean = self._every.sub(MASK, _plain(text))
        flat = " ".join("".join(c if c.isprintable() else " " for c in clean).split())
        return flat if len(flat) <= MAX_LINE_CHARS else flat[: MAX_LINE_CHARS - 1] + "…"

    def scrub_text(self, text: str) -> str:
        """The whole text, secrets of any length worth the name masked."""
        return self._long.sub(MASK, _plain(text))


def _secrets(settings: ModelSettings) -> set[str]:
    found = {settings.api_key.get_secret_value(), *settings.headers.values()}
    if settings.login:
        user, password = settings.login
        found |= {user, password, base64.b64encode(f"{user}:{password}".encode()).decode()}
    return found


def _pattern(secrets: Iterable[str], least: int) -> re.Pattern[str]:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= least:
            forms |= {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _plain(text: str) -> str:
    """Without what cannot be written to a file: lone surrogates and NUL become question marks."""
    return text.encode(errors="replace").decode().replace("\0", "?")
