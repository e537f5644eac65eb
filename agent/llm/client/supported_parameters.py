"""Which parameters a server takes: found out from its complaints, and remembered."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from hillclimb.agent.llm.client.diagnosis import error_message
from hillclimb.agent.llm.client.http_response import HttpResponse
from hillclimb.agent.llm.client.settings import ModelSettings

TOKEN_LIMIT_NAMES = ("max_completion_tokens", "max_tokens")
"""Two names of one limit; the second is tried where the first is refused."""
_WORDS = {
    "temperature": r"temperature",
    "reasoning_effort": r"reasoning[_. ]effort|thinking",
    "max_completion_tokens": r"max_(completion_|output_)?tokens",
    "max_tokens": r"max_(completion_|output_)?tokens",
}
_COMPLAINT = re.compile(
    r"(?i)support|recogni[sz]ed|unknown|unexpected|invalid|permitted|allowed|extra|deprecated|only the default"
    r"|must be|too large|exceed|at most"
)


class SupportedParameters:
    """Grows by what the server refuses; one an endpoint, used from its thread alone."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._refused: set[str] = set()

    def parameters(self) -> dict[str, Any]:
        """What to send besides model and messages."""
        wanted: dict[str, Any] = {
            "temperature": self._settings.temperature,
            "reasoning_effort": self._settings.reasoning_effort,
        }
        limit = next((name for name in TOKEN_LIMIT_NAMES if name not in self._refused), None)
        if limit:
            wanted[limit] = self._settings.reply_tokens
        return {
            name: value for name, value in wanted.items() if value is not None and name not in self._refused
        }

    def refuse(self, name: str) -> None:
        """Do not send this parameter again."""
        self._refused.add(name)

    def adjusted(self) -> tuple[str, ...]:
        """What is left out or swapped, in words."""
        found = [
            f"{name} left out: refused by the server"
            for name in sorted(self._refused - set(TOKEN_LIMIT_NAMES))
        ]
        if set(TOKEN_LIMIT_NAMES) <= self._refused:
            return (*found, "no token limit: both names for it refused by the server")
        if TOKEN_LIMIT_NAMES[0] in self._refused:
            found.append(
                f"{TOKEN_LIMIT_NAMES[1]} sent in place of {TOKEN_LIMIT_NAMES[0]}, which the server refused"
            )
        return tuple(found)


def refused_parameter(answer: HttpResponse, sent: Collection[str]) -> str | None:
    """The parameter out of `sent` that an answer complains about; None where it is about something else."""
    if answer.status not in (400, 422):
        return None
    document = answer.parse_json_or_none()
    error = document.get("error") if isinstance(document, dict) else None
    named = error.get("param") if isinstance(error, dict) else None
    if isinstance(named, str) and named:
        return _first(named, sent)
    said = error_message(document) or answer.excerpt()
    return _first(said, sent) if _COMPLAINT.search(said) else None


def _first(said: str, sent: Collection[str]) -> str | None:
    """The parameter that is mentioned first."""
    found = {name: re.search(rf"(?i)\b({_WORDS[name]})\b", said) for name in sent if name in _WORDS}
    places = {name: match.start() for name, match in found.items() if match}
    return min(places, key=lambda name: places[name]) if places else None
