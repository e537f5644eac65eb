"""Reads a completion out of an answer, or says why there is none in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from hillclimb.agent.llm.client.diagnosis import diagnose, diagnose_error, error_message
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault
from hillclimb.agent.llm.client.http_response import CutStream, HttpResponse
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.client.usage import cut_prompt_tokens, read_cost, read_usage, tells_usage
from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.wording import count

_OPENING = re.compile(r"\s*<(think(?:ing)?)\b[^<>\n]{0,80}>", re.IGNORECASE)
_THOUGHTS = ("reasoning", "thinking", "thought", "redacted_thinking")
"""Types of parts that are no text of the reply."""


@dataclass(frozen=True)
class Completion:
    """The text of one answer, as the server sent it but for its thoughts."""

    text: str
    model: str
    finish: str
    usage: TokenUsage
    cost: float | None
    prompt_cut_to: int = 0
    """Tokens of the prompt that were read, where the server cut it; 0 where it did not."""


def read_completion(
    answer: HttpResponse, prompt: str, settings: ModelSettings
) -> Completion | AttemptFailure:
    """The completion in an answer to `prompt`. Never raises, whatever the bytes."""
    outcome = _read(answer, prompt, settings)
    if isinstance(outcome, AttemptFailure) and outcome.usage is None:
        return _with_usage(outcome, answer, prompt, settings)
    return outcome


def _read(answer: HttpResponse, prompt: str, settings: ModelSettings) -> Completion | AttemptFailure:
    if not 200 <= answer.status < 300:
        return diagnose(answer)
    if not answer.body.strip():
        return AttemptFailure(Fault.EMPTY_BODY, f"HTTP {answer.status} with an empty body")
    try:
        document = answer.parse_json()
    except CutStream as cut:
        return AttemptFailure(Fault.CUT_OFF, str(cut))
    except ValueError as error:
        return _not_json(answer, error)
    if not isinstance(document, dict):
        return AttemptFailure(
            Fault.NO_CHOICES, f"a JSON {type(document).__name__} came, not an object with choices"
        )
    choice = _first_choice(document)
    if choice is None or (answer.is_stream and document.get("error")):
        return _no_choice(answer, document)
    return _read_choice(document, choice, prompt, settings)


def _with_usage(
    failure: AttemptFailure, answer: HttpResponse, prompt: str, settings: ModelSettings
) -> AttemptFailure:
    """With what the answer tells of tokens all the same, or has of a reply that an error ended."""
    document = answer.parse_json_or_none()
    if not isinstance(document, dict):
        return failure
    message = (_first_choice(document) or {}).get("message")
    said = _texts(message) if isinstance(message, dict) else ""
    if not said and not tells_usage(document):
        return failure
    usage = read_usage(document, prompt, said, settings.reply_tokens)
    return replace(failure, usage=usage, cost=read_cost(document, usage, settings.prices))


def strip_thinking(text: str) -> str:
    """The text without the thoughts that it begins with, <think>...</think>; unclosed, all of it is thought.

    Thoughts in other marks are told from the reply by who reads replies.
    """
    while match := _OPENING.match(text):
        closed = re.compile(rf"</{match[1]}\s{{0,3}}>", re.IGNORECASE).search(text, match.end())
        text = text[closed.end() :].lstrip() if closed else ""
    return text


def _read_choice(
    document: dict[str, Any], choice: dict[str, Any], prompt: str, settings: ModelSettings
) -> Completion | AttemptFailure:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    whole = _text(message.get("content"))
    usage = read_usage(document, prompt, _texts(message), settings.reply_tokens)
    cost = read_cost(document, usage, settings.prices)
    finish = choice.get("finish_reason")
    finish = finish if isinstance(finish, str) else ""
    text = strip_thinking(whole)
    failure = _fault_of(choice, message, finish, text)
    if failure:
        return replace(failure, usage=usage, cost=cost)
    model = document.get("model")
    name = model if isinstance(model, str) and model else settings.model
    return Completion(text, name, finish, usage, cost, cut_prompt_tokens(document, prompt))


def _fault_of(
    choice: dict[str, Any], message: dict[str, Any], finish: str, text: str
) -> AttemptFailure | None:
    if choice.get("error"):
        return AttemptFailure(Fault.SERVER_ERROR, f"the provider failed midway: {error_message(choice)}")
    refusal = message.get("refusal")
    refusal = refusal.strip() if isinstance(refusal, str) else refusal
    if refusal or finish == "content_filter":
        said = _text(refusal).strip() or text.strip()
        return AttemptFailure(Fault.REFUSED, said or "the model or a content filter stopped the reply")
    if finish.casefold() in ("length", "max_tokens"):
        return AttemptFailure(
            Fault.TRUNCATED, f"the reply ended at its token limit after {count(len(text), 'character')}"
        )
    if not text.strip():
        called = "tool calls only, and none were offered" if message.get("tool_calls") else "no text in it"
        return AttemptFailure(Fault.NO_CONTENT, f"a reply with {called} (finish reason {finish or 'none'})")
    return None


def _first_choice(document: dict[str, Any]) -> dict[str, Any] | None:
    choices = document.get("choices")
    if not isinstance(choices, list):
        return None
    return next((choice for choice in choices if isinstance(choice, dict)), None)


def _no_choice(answer: HttpResponse, document: dict[str, Any]) -> AttemptFailure:
    error = document.get("error")
    found = diagnose_error(answer, error) if error else None
    if found:
        return found
    said = error_message(document) or json.dumps(sorted(document))
    return AttemptFailure(Fault.NO_CHOICES, f"HTTP {answer.status} without choices: {said}")


def _not_json(answer: HttpResponse, error: ValueError) -> AttemptFailure:
    kind = answer.headers.get("content-type", "")
    if answer.body.lstrip()[:1] in (b"{", b"[") or answer.is_stream:
        return AttemptFailure(Fault.BROKEN_JSON, f"broken JSON of {count(len(answer.body), 'byte')}: {error}")
    return AttemptFailure(Fault.NOT_JSON, f"not JSON but {kind or 'something unnamed'}: {answer.excerpt()}")


def _texts(message: dict[str, Any]) -> str:
    """All that the model said, thoughts included."""
    return _text(message.get("content")) + _text(message.get("reasoning_content") or message.get("reasoning"))


def _text(content: Any) -> str:
    """A text, or the texts of a list of parts but for thoughts; empty for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    said = [part for part in content if not isinstance(part, dict) or part.get("type") not in _THOUGHTS]
    parts = [part.get("text") if isinstance(part, dict) else part for part in said]
    return "".join(part for part in parts if isinstance(part, str))
