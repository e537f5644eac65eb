"""How long to wait before the next attempt."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class BackoffPolicy:
    """Exponential backoff with jitter, so that calls in flight do not come back in step."""

    first_seconds: float = 1.0
    """Seconds after the first attempt; each later one doubles it."""
    max_seconds: float = 60.0

    def delay_seconds(self, attempt: int, requested_seconds: float | None, rng: random.Random) -> float:
        """Seconds to wait after the given attempt (from 1); never less than the server asked for."""
        grown = min(self.max_seconds, self.first_seconds * 2.0 ** (attempt - 1)) * rng.uniform(0.5, 1)
        if requested_seconds is None:
            return grown
        return max(requested_seconds, min(grown, self.first_seconds)) + rng.uniform(
            0, min(1.0, requested_seconds / 10)
        )


_DELAY_IN_BODY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
"""Where Google's endpoint says it, instead of a header."""


def retry_after_seconds(headers: Mapping[str, str], body: bytes) -> float | None:
    """Seconds that an answer asks to wait, as Retry-After (seconds or date) or a retryDelay; None without sense."""
    told = headers.get("retry-after", "").strip()
    if told:
        return _seconds(told) if _is_number(told) else _until(told, headers.get("date", ""))
    match = _DELAY_IN_BODY.search(body[:100_000])
    return float(match[1]) if match else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _seconds(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) and value >= 0 else None


def _until(date: str, now: str) -> float | None:
    """Seconds from the server's own time, where it tells it, to the date; 0 for one in the past."""
    then = _timestamp(date)
    if then is None:
        return None
    present = _timestamp(now)
    return max(0.0, then - (time.time() if present is None else present))


def _timestamp(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
