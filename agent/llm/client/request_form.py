"""How one server wants to be asked: parameters, the form of messages, streams. Learnt from what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from hillclimb.agent.llm.client.diagnosis import server_message
from hillclimb.agent.llm.client.http_response import HttpResponse
from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.client.supported_parameters import SupportedParameters

Turns = list[tuple[str, str]]
"""(role, content), in order."""

_GAP = "\n\n"
_COMPLAINING = (400, 422)
_COMPLAINING_OF_MESSAGES = (*_COMPLAINING, 500, 501)
"""A template that refuses a role fails within the server."""


def _without_system(turns: Turns) -> Turns:
    """What the system says goes before what the user says first."""
    told = _GAP.join(content for role, content in turns if role in ("system", "developer"))
    rest = [(role, content) for role, content in turns if role not in ("system", "developer")]
    if rest and not told:
        return rest
    if rest and rest[0][0] == "user":
        return [("user", f"{told}{_GAP}{rest[0][1]}"), *rest[1:]]
    return [("user", told), *rest]


def _as_developer(turns: Turns) -> Turns:
    return [("developer" if role == "system" else role, content) for role, content in turns]


def _merged(turns: Turns) -> Turns:
    """No role speaks twice in a row."""
    groups = groupby(turns, key=lambda turn: turn[0])
    return [(role, _GAP.join(content for _, content in group)) for role, group in groups]


def _single(turns: Turns) -> Turns:
    """One message of the user's that tells who said what."""
    return [
        ("user", _GAP.join(content if len(turns) == 1 else f"[{role}]\n{content}" for role, content in turns))
    ]


_STEPS: dict[str, tuple[Callable[[Turns], Turns], str]] = {
    "developer": (_as_developer, "the system's text sent with the role developer"),
    "no system": (_without_system, "the system's text sent within the first message of the user"),
    "merged": (_merged, "messages of one role in a row merged"),
    "single": (_single, "all messages sent as one"),
}
"""In the order in which they are applied: what each does, and what is told of it."""

_COMPLAINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "parts",
        re.compile(r"(?i)content\b.{0,80}\b(list|array|sequence|parts)\b|\b(list|array) of (content )?parts"),
    ),
    (
        "developer",
        re.compile(r"(?i)\bdeveloper\b.{0,60}\b(instead|in place)|(instead|use).{0,40}\bdeveloper\b"),
    ),
    ("merged", re.compile(r"(?i)alternat|consecutive|in a row|same role")),
    ("no system", re.compile(r"(?i)\b(system|developer)\b")),
    ("merged", re.compile(r"(?i)roles? must")),
)
_ABOUT_MESSAGES = re.compile(
    r"(?i)\b(roles?|jinja|chat.?template|conversation|(system|developer) (prompt|message|instruction)s?)\b"
    r"|\bmessages?[\[.]\d"
)
_LADDER = ("no system", "merged", "single")
"""What is tried where the complaint does not say more."""


class MessageForm:
    """Roles, their order and parts as a server takes them; one an endpoint, used from its thread alone."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def apply(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as this server takes them."""
        turns = self._turns(_written(messages))
        said = [(role, content.encode(errors="replace").decode()) for role, content in turns]
        if "parts" not in self._taken:
            return [{"role": role, "content": content} for role, content in said]
        return [{"role": role, "content": [{"type": "text", "text": content}]} for role, content in said]

    def learn(self, said: str, messages: Sequence[Message]) -> bool:
        """Whether a complaint is about the form of messages, and another form is left to try."""
        if not _ABOUT_MESSAGES.search(said) and not any(sign.search(said) for _, sign in _COMPLAINTS[:1]):
            return False
        named = [step for step, sign in _COMPLAINTS if sign.search(said)]
        for step in (*named, *_LADDER):
            if step not in self._taken and self._changes(step, messages):
                self._taken.add(step)
                return True
        return False

    def adjusted(self) -> tuple[str, ...]:
        """What is sent otherwise than it was written, in words."""
        told = ["messages sent in parts"] if "parts" in self._taken else []
        return tuple(told + [words for step, (_, words) in _STEPS.items() if step in self._taken])

    def _turns(self, turns: Turns) -> Turns:
        for step, (change, _) in _STEPS.items():
            if step in self._taken:
                turns = change(turns)
        return turns

    def _changes(self, step: str, messages: Sequence[Message]) -> bool:
        """Whether a step makes other messages of these."""
        turns = self._turns(_written(messages))
        return step == "parts" or _STEPS[step][0](turns) != turns


def _written(messages: Sequence[Message]) -> Turns:
    return [(message.role, message.content) for message in messages]


class RequestForm:
    """One an endpoint, used from its thread alone."""

    def __init__(self, settings: ModelSettings) -> None:
        self._parameters, self._messages = SupportedParameters(settings), MessageForm()

    def parameters(self) -> dict[str, Any]:
        """What to send besides model and messages."""
        return self._parameters.parameters()

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as the server takes them."""
        return self._messages.apply(messages)

    def learn(self, answer: HttpResponse, messages: Sequence[Message], sent: Mapping[str, Any]) -> bool:
        """Whether an answer complains about the form of the request, which is another one from here on."""
        if answer.status not in _COMPLAINING_OF_MESSAGES:
            return False
        said, named = server_message(answer), _named(answer)
        is_about_messages = named.startswith("messages")
        if (
            answer.status in _COMPLAINING
            and not is_about_messages
            and self._parameters.learn(said, named, sent)
        ):
            return True
        return self._messages.learn(f"{named} {said}", messages)

    def stream(self) -> bool:
        """Ask for streams from here on; whether that is anything new."""
        return self._parameters.stream()

    def adjusted(self) -> tuple[str, ...]:
        """What is sent otherwise than it was written, in words."""
        return (*self._parameters.adjusted(), *self._messages.adjusted())


def _named(answer: HttpResponse) -> str:
    """The parameter that an error document names; empty where it names none."""
    document = answer.parse_json_or_none()
    error = document.get("error") if isinstance(document, dict) else None
    named = error.get("param") if isinstance(error, dict) else None
    return named if isinstance(named, str) else ""
