"""An HTTP answer as it came: status, headers, and the body under a cap; an event stream as the document it comes to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_DONE = "[DONE]"
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


class CutStream(ValueError):
    """The stream ended before the reply did."""


@dataclass(frozen=True)
class HttpResponse:
    """One whole answer, of whatever status."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events, whatever its type says."""
        body = self.body.lstrip()
        is_named = "event-stream" in self.headers.get("content-type", "") and not body.startswith(b"{")
        return is_named or body.startswith((b"data:", b"event:", b": "))

    def parse_json(self) -> Any:
        """The body as JSON. Raises CutStream where a stream ended early, else ValueError where it is none."""
        try:
            return read_stream(self.body) if self.is_stream else json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def parse_json_or_none(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return self.parse_json()
        except ValueError:
            return None

    def excerpt(self) -> str:
        """How the body begins, for people: tags dropped, a page's title first."""
        text = self.body[:20_000].decode(errors="replace")
        title = re.search(r"(?is)<title[^>]*>(.{0,300}?)</title>", text)
        return title[1] if title else re.sub(r"(?s)<[^>]*>", " ", text)


def read_stream(body: bytes) -> dict[str, Any]:
    """The document that the events come to. Raises CutStream, else ValueError where one of them is no JSON."""
    whole: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    message: dict[str, Any] = {}
    is_done = False
    for data in _events(body.decode(errors="replace")):
        if data == _DONE:
            is_done = True
            continue
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            continue
        whole |= {key: value for key, value in chunk.items() if key != "choices" and value is not None}
        for part in chunk.get("choices") or ():
            if isinstance(part, dict) and not part.get("index"):
                choice |= {key: value for key, value in part.items() if value is not None}
                _add(message, part.get("delta") or part.get("message"))
    if "error" in whole:
        return {**whole, "choices": [{**choice, "message": message}]} if message else whole
    if not is_done and not choice.get("finish_reason"):
        raise CutStream("the stream ended before the reply did")
    return {**whole, "choices": [{**choice, "message": message}]} if choice else whole


def _add(message: dict[str, Any], delta: Any) -> None:
    if not isinstance(delta, dict):
        return
    for key, value in delta.items():
        if key in _TEXTS and isinstance(value, str) and isinstance(message.get(key, ""), str):
            message[key] = message.get(key, "") + value
        elif key in _TEXTS and isinstance(value, list):
            message[key] = [*(message.get(key) or []), *value]
        elif value is not None:
            message[key] = value


def _events(text: str) -> Iterator[str]:
    """The data of each event; its lines joined as the standard has it."""
    lines: list[str] = []
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
