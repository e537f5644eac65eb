"""Which parameters a server takes, and which values: found out from its complaints, and remembered."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from hillclimb.agent.llm.client.settings import ModelSettings

TOKEN_LIMIT_NAMES = ("max_completion_tokens", "max_tokens")
"""Two names of one limit; the second is tried where the first is refused."""
_STREAM = "stream"
_WORDS = {
    "temperature": r"temperature",
    "reasoning_effort": r"reasoning[_. ]effort|thinking",
    "max_completion_tokens": r"max_(completion_|output_|new_)?tokens",
    "max_tokens": r"max_(completion_|output_|new_)?tokens",
    "stream_options": r"stream_options|include_usage",
    _STREAM: r"stream(ing)?",
}
_COMPLAINT = re.compile(
    r"(?i)support|recogni[sz]ed|unknown|unexpected|invalid|permitted|allowed|extra|deprecated|only the default"
    r"|must be|too large|exceed|at most|should be|has to be|requires?\b|only accepts?"
)
_STREAM_ONLY = re.compile(
    r"(?i)\bstream(ing)?\b.{0,80}\b(only|mode|required|enable|must|true)|\b(only|enable|must)\b.{0,60}\bstream"
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")
_RANGE = re.compile(r"(?i)\b(between|range|from)\b|\[")
_CONTEXT_LENGTH = re.compile(
    r"(?i)(?:maximum context length is|must be <=|context (?:length|window|size) (?:is|of))\D{0,5}([\d,]+)"
)
_PROMPT_LENGTH = re.compile(
    r"(?i)([\d,]+)\s+(?:tokens )?(?:in the (?:messages|prompt)|`?inputs`? tokens|input tokens|prompt tokens)"
)
MIN_REPLY_TOKENS = 1024
"""A reply limit below would leave no room for a kernel."""


class SupportedParameters:
    """Grows by what the server refuses; one an endpoint, used from its thread alone."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._refused: set[str] = set()
        self._values: dict[str, Any] = {}
        """Values that the server named in place of ours."""
        self._is_streamed = False

    def parameters(self) -> dict[str, Any]:
        """What to send besides model and messages."""
        wanted: dict[str, Any] = {
            "temperature": self._settings.temperature,
            "reasoning_effort": self._settings.reasoning_effort,
        }
        limit = next((name for name in TOKEN_LIMIT_NAMES if name not in self._refused), None)
        if limit:
            wanted[limit] = self._settings.reply_tokens
        if self._is_streamed:
            wanted |= {_STREAM: True, "stream_options": {"include_usage": True}}
        wanted |= self._values
        if _STREAM in self._refused:
            wanted.pop("stream_options", None)
        left = {name: value for name, value in wanted.items() if name not in self._refused} | dict(
            self._settings.extra
        )
        return {name: value for name, value in left.items() if value is not None}

    def learn(self, said: str, named: str, sent: Mapping[str, Any]) -> bool:
        """Whether a complaint is about a parameter, which is then sent otherwise.

        `named`: the parameter that the answer names beside its words; may be empty.
        """
        if _STREAM not in sent and _STREAM not in self._refused and _STREAM_ONLY.search(said):
            return self.stream()
        if (room := _room(said)) is not None:
            return self._lower_limit(room, sent)
        name = refused_parameter(said, named, [*sent, "temperature"])
        if name is None or name in self._settings.extra or (name not in sent and name in self._values):
            return False
        value = self._wanted_value(name, said, sent)
        if value is not None and value != sent.get(name) and name not in self._values:
            self._values[name] = value
            return True
        if name not in sent:
            return False
        self._refused.add(name)
        self._values.pop(name, None)
        return True

    def _lower_limit(self, room: int, sent: Mapping[str, Any]) -> bool:
        """Ask for a reply that fits behind the prompt; whether it is worth asking for."""
        name = next((name for name in TOKEN_LIMIT_NAMES if name in sent), None)
        if name is None or name in self._settings.extra or not MIN_REPLY_TOKENS <= room < sent[name]:
            return False
        self._values[name] = room
        return True

    def stream(self) -> bool:
        """Ask for streams from here on; whether that is anything new."""
        is_new = not self._is_streamed and _STREAM not in self._refused
        self._is_streamed = True
        return is_new

    def _wanted_value(self, name: str, said: str, sent: Mapping[str, Any]) -> Any:
        """The value that the server asks for in words; None where it names none."""
        if name in TOKEN_LIMIT_NAMES:
            return _wanted_limit(said, sent.get(name, 0))
        if name != "temperature" or "default" in said.casefold():
            return None
        return _wanted_number(said, sent.get(name))

    def adjusted(self) -> tuple[str, ...]:
        """What is left out, swapped or sent otherwise, in words."""
        changed = {name: value for name, value in self._values.items() if name not in self._refused}
        found = [f"{name} {value}, as the server wants it" for name, value in sorted(changed.items())]
        found += [
            f"{name} left out: refused by the server"
            for name in sorted(self._refused - set(TOKEN_LIMIT_NAMES))
        ]
        if self._is_streamed and _STREAM not in self._refused:
            found.append("replies come as streams")
        if set(TOKEN_LIMIT_NAMES) <= self._refused:
            return (*found, "no token limit: both names for it refused by the server")
        if TOKEN_LIMIT_NAMES[0] in self._refused:
            found.append(
                f"{TOKEN_LIMIT_NAMES[1]} sent in place of {TOKEN_LIMIT_NAMES[0]}, which the server refused"
            )
        return tuple(found)


def refused_parameter(said: str, named: str, sent: Collection[str]) -> str | None:
    """The parameter out of `sent` that a complaint is about; None where it is about something else."""
    if named:
        return _first(named, sent)
    return _first(said, sent) if _COMPLAINT.search(said) else None


def _first(said: str, sent: Collection[str]) -> str | None:
    """The parameter that is mentioned first."""
    found = {name: re.search(rf"(?i)\b({_WORDS[name]})\b", said) for name in sent if name in _WORDS}
    places = {name: match.start() for name, match in found.items() if match}
    return min(places, key=lambda name: places[name]) if places else None


def _numbers(said: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(said)]


def _wanted_number(said: str, sent: float | None) -> float | None:
    """The number, or the nearest end of the range, that a complaint names besides the one that was sent."""
    numbers = [number for number in _numbers(said) if number != sent and number <= 2]
    if len(numbers) > 1 and _RANGE.search(said):
        low, high = sorted(numbers[:2])
        return high if sent is None or sent > high else low
    return numbers[0] if numbers else None


def _wanted_limit(said: str, sent: int) -> int | None:
    """The largest reply that a complaint allows; None where it names none, or next to nothing."""
    allowed = int(max((number for number in _numbers(said) if number < sent), default=0))
    return allowed if allowed >= MIN_REPLY_TOKENS else None


def _room(said: str) -> int | None:
    """The tokens that a complaint leaves behind the prompt; None where it does not say both lengths."""
    length, prompt = _CONTEXT_LENGTH.search(said), _PROMPT_LENGTH.search(said)
    if not length or not prompt:
        return None
    whole, used = (int(found[1].replace(",", "")) for found in (length, prompt))
    return whole - used
