"""What a person adds to every request to a model, as typed on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from hillclimb.harness.errors import UsageError

_OURS = {"model", "messages"}
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A header's name, as RFC 9110 has it."""


def read_extra(typed: Iterable[str]) -> dict[str, Any]:
    """Parameters from `KEY=JSON`. Raises UsageError for what is none."""
    found: dict[str, Any] = {}
    for text in typed:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--request-extra {text}: write KEY=JSON, such as top_k=20")
        if key in _OURS:
            raise UsageError(f"--request-extra {text}: {key} is not for an option to change; drop it")
        try:
            found[key] = json.loads(value)
        except ValueError:
            quoted = json.dumps(value)
            raise UsageError(
                f"--request-extra {text}: {value!r} is no JSON; a text stands in quotes, as '{key}={quoted}'"
            ) from None
    return found


def read_headers(typed: Iterable[str]) -> dict[str, str]:
    """Headers from `NAME=VALUE`. Raises UsageError, without the value, for what is none."""
    found: dict[str, str] = {}
    for text in typed:
        name, separator, value = text.partition("=")
        if not separator or not _TOKEN.fullmatch(name):
            raise UsageError(f"--request-header {name}: write NAME=VALUE, such as X-Title=hillclimb")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(
                f"--request-header {name}: its value has what no header holds; write plain ASCII"
            )
        found[name] = value
    return found
