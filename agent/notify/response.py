"""What one request to a webhook came to: read off status, headers and body, never quoting them.

Whoever answers may put the address into what it says, so only the status and Discord's numeric code are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ResponseKind = Literal["sent", "limited", "gone", "refused", "failed"]

UNKNOWN_WEBHOOK = 10015
"""https://discord.com/developers/docs/topics/opcodes-and-status-codes#json"""
_GONE_STATUSES = (401, 403, 404)
_RETRY_STATUSES = (408, 425)


@dataclass(frozen=True)
class WebhookResponse:
    """sent: Discord took it; limited: not yet; gone: never again; refused: not this post; failed: perhaps later."""

    kind: ResponseKind
    reason: str
    """In words, with nothing in it that came from the other side but numbers."""
    pause_seconds: float | None = None
    """Seconds to wait before the next request, where the other side said so."""


def read_answer(status: int, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
    """What a reply means. `headers` takes names in any case."""
    said = _parse(body)
    number = said.get("code")
    code = f" (Discord code {number})" if type(number) is int and number else ""
    why = f"HTTP {status}{code}"
    if 200 <= status < 300:
        if _is_page(headers, body):
            return WebhookResponse("failed", f"{why} with a web page instead of Discord's reply")
        return WebhookResponse("sent", why, _bucket_reset_seconds(headers))
    if status == 429:
        return WebhookResponse("limited", "rate limited (HTTP 429)", _retry_after_seconds(headers, said))
    if status in _GONE_STATUSES or number == UNKNOWN_WEBHOOK:
        return WebhookResponse("gone", f"the webhook is gone: {why}")
    if 400 <= status < 500 and status not in _RETRY_STATUSES:
        return WebhookResponse("refused", f"refused: {why}")
    return WebhookResponse("failed", why, _retry_after_seconds(headers, {}))


def _parse(body: bytes) -> dict[str, object]:
    """The reply's JSON object; empty where it is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _is_page(headers: Mapping[str, str], body: bytes) -> bool:
    """A login page of a network, or of a proxy, answers everything with 200."""
    return "html" in headers.get("content-type", "").lower() or body.lstrip()[:1] == b"<"


def _retry_after_seconds(headers: Mapping[str, str], said: Mapping[str, object]) -> float | None:
    """The longest wait that the reply asks for; None where it names none."""
    named = (said.get("retry_after"), headers.get("retry-after"), headers.get("x-ratelimit-reset-after"))
    waits = [wait for wait in map(_seconds, named) if wait is not None]
    return max(waits, default=None)


def _bucket_reset_seconds(headers: Mapping[str, str]) -> float | None:
    """The wait until the webhook's bucket is filled again, where this request emptied it."""
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    return _seconds(headers.get("x-ratelimit-reset-after"))


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
