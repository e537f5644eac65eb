"""The one reading of a duration: of an option, of case.yaml, of a configuration."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}

ACCEPTED = "seconds, or a number with d, h, m or s: 45, 45s, 90m, 8h, 1h30m"
"""What a duration may look like, for messages."""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PART = re.compile(rf"({_NUMBER})\s*(d|h|min|m|s)\s*")
_WHOLE = re.compile(rf"(?:{_NUMBER}\s*(?:d|h|min|m|s)\s*)+")


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError, which says what is accepted."""
    cleaned = text.strip().lower()
    seconds = _plain_seconds(cleaned)
    if seconds is None and _WHOLE.fullmatch(cleaned):
        parts = _PART.findall(cleaned)
        units = [UNIT_SECONDS[unit] for _, unit in parts]
        if units == sorted(set(units), reverse=True):
            seconds = sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"give a duration above 0: {ACCEPTED}")
    return seconds


def _plain_seconds(text: str) -> float | None:
    """A number without a unit; None for anything else."""
    try:
        return float(text)
    except ValueError:
        return None


def _from_yaml(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_from_yaml)]
"""A key of a YAML file that holds a duration: a number of seconds, or text as `parse_duration` takes it."""


def describe_limit(seconds: float) -> str:
    """`2m`, `90s`: as it would be written."""
    minutes = seconds / UNIT_SECONDS["m"]
    return f"{minutes:g}m" if minutes >= 2 and minutes.is_integer() else f"{seconds:g}s"
