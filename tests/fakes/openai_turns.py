"""What the fake OpenAI server can do with one request: answer a text, or play a fault by name.

A Turn is data where HTTP is kept, and a `play` function where the connection itself misbehaves.
"""

from __future__ import annotations

import email.utils
import gzip
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Asked:
    """One request as the server got it."""

    count: int
    """From 1, chat requests only; 0 for any other."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The JSON sent; None where there was none."""

    @property
    def messages(self) -> list[dict[str, str]]:
        return list(self.body["messages"])

    @property
    def prompt(self) -> str:
        """All messages in one text, for scripts that look for words."""
        return "\n\n".join(message["content"] for message in self.messages)


class Stage(Protocol):
    """The connection, as a `play` function sees it. Waits end early when the server closes."""

    def send(self, data: bytes) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def cut(self) -> None: ...


@dataclass(frozen=True)
class Turn:
    """One answer."""

    status: int = 200
    body: Any = b""
    """Bytes as they are; anything else as JSON."""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the first byte."""
    pace: float = 0.0
    """Seconds between the bytes of the body; 0 sends it at once."""
    echo: bool = False
    """Whether {key} in body and headers becomes the request's authorization header."""
    play: Callable[[Stage, Asked], None] | None = None
    """Takes the connection over instead of all that."""

    def encoded(self, asked: Asked) -> bytes:
        """The body as bytes."""
        data = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return self._filled(data.decode("latin-1"), asked).encode("latin-1")

    def fields(self, asked: Asked) -> dict[str, str]:
        """The headers of its own."""
        return {name: self._filled(value, asked) for name, value in self.headers.items()}

    def _filled(self, text: str, asked: Asked) -> str:
        return text.replace("{key}", asked.headers.get("authorization", "")) if self.echo else text


Script = Callable[[Asked], Turn]


def answer(
    text: str | None,
    *,
    finish: str = "stop",
    usage: Any = None,
    model: str = "fake-1",
    delay: float = 0.0,
    pace: float = 0.0,
    **message: Any,
) -> Turn:
    """A good answer; further keywords become keys of the message. `usage={}` leaves the usage out."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150}
        if usage is None
        else usage,
    }
    if usage == {}:
        del body["usage"]
    return Turn(body=body, delay=delay, pace=pace)


def error(
    status: int, message: str, *, headers: Mapping[str, str] | None = None, echo: bool = False, **keys: Any
) -> Turn:
    """An error as OpenAI words it."""
    return Turn(status, {"error": {"message": message, **keys}}, headers=headers or {}, echo=echo)


def fault(name: str) -> Turn:
    """The fault of that name; FAULTS lists them."""
    if name not in FAULTS:
        raise KeyError(f"no fault {name!r}; there are {', '.join(sorted(FAULTS))}")
    return FAULTS[name]()


def turn(spec: Mapping[str, Any] | str) -> Turn:
    """A turn out of a script file: a text, {"fault": name}, {"text": ..., ...} as for `answer`, or keys of Turn."""
    if isinstance(spec, str):
        return answer(spec)
    if "fault" in spec:
        return fault(spec["fault"])
    return answer(**spec) if "text" in spec else Turn(**spec)


def _hang(stage: Stage, asked: Asked) -> None:
    stage.wait(60)


def _slow_head(stage: Stage, asked: Asked) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}":
        stage.send(bytes([byte]))
        stage.wait(0.1)


def _head_then_hang(stage: Stage, asked: Asked) -> None:
    stage.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n")
    stage.wait(60)


def _cut_in_body(stage: Stage, asked: Asked) -> None:
    stage.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{"id":')
    stage.cut()


def _cut_chunked(stage: Stage, asked: Asked) -> None:
    stage.send(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n{"id":\r\n')
    stage.cut()


def _cut_at_once(stage: Stage, asked: Asked) -> None:
    stage.cut()


def _length_too_long(stage: Stage, asked: Asked) -> None:
    body = answer("hi").encoded(asked)
    stage.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (len(body) + 50)
    )
    stage.send(body)
    stage.wait(60)


def _length_too_short(stage: Stage, asked: Asked) -> None:
    body = answer("hi").encoded(asked)
    stage.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (len(body) - 50)
    )
    stage.send(body)
    stage.cut()


def _endless(stage: Stage, asked: Asked) -> None:
    stage.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    for _ in range(4096):
        stage.send(b" " * 65_536)


def _garbage(stage: Stage, asked: Asked) -> None:
    stage.send(b"\x16\x03\x01\x02\x00\x01\x00 SSH-2.0-OpenSSH_9.6\r\n\r\n")
    stage.cut()


def _endless_head(stage: Stage, asked: Asked) -> None:
    stage.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(20_000):
        stage.send(b"x-filler-%d: %s\r\n" % (number, b"y" * 80))


def _in(seconds: float) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


def _bomb(layers: int) -> bytes:
    data = b" " * (32 * 2**20)
    for _ in range(layers):
        data = gzip.compress(data, compresslevel=1, mtime=0)
    return data


_CUT_EVENTS = b"""data: {"choices":[{"delta":{"content":"hi"}}]}\n\n"""
_CALLS = [{"id": "1", "type": "function", "function": {"name": "run", "arguments": "{}"}}]
_OK = answer("hi")


FAULTS: dict[str, Callable[[], Turn]] = {
    # the connection
    "hang": lambda: Turn(play=_hang),
    "slow_head": lambda: Turn(play=_slow_head),
    "head_then_hang": lambda: Turn(play=_head_then_hang),
    "drip": lambda: Turn(body=_OK.body, pace=0.1),
    "cut": lambda: Turn(play=_cut_in_body),
    "cut_chunked": lambda: Turn(play=_cut_chunked),
    "cut_at_once": lambda: Turn(play=_cut_at_once),
    "length_too_long": lambda: Turn(play=_length_too_long),
    "length_too_short": lambda: Turn(play=_length_too_short),
    "endless": lambda: Turn(play=_endless),
    "endless_head": lambda: Turn(play=_endless_head),
    "garbage": lambda: Turn(play=_garbage),
    "gzip_bomb": lambda: Turn(body=_bomb(1), headers={"content-encoding": "gzip"}),
    "gzip_bomb_twice": lambda: Turn(body=_bomb(2), headers={"content-encoding": "gzip, gzip"}),
    "bad_gzip": lambda: Turn(body=b"{}", headers={"content-encoding": "gzip"}),
    # answers that are none
    "empty": Turn,
    "no_content_204": lambda: Turn(204),
    "html200": lambda: Turn(body=b"<html><title>Sign in</title>captive portal</html>", kind="text/html"),
    "cut_stream": lambda: Turn(body=_CUT_EVENTS, kind="text/event-stream"),
    "badjson": lambda: Turn(body=b'{"id": "x", "choices": ['),
    "deep_json": lambda: Turn(body=b"[" * 500_000),
    "bad_utf8": lambda: Turn(body=b'{"choices": [{"message": {"content": "\xff\xfe\xfa"}}]}'),
    "long_number": lambda: Turn(body=b'{"created": ' + b"9" * 10_000 + b"}"),
    "json_list": lambda: Turn(body=[1, 2]),
    "json_null": lambda: Turn(body=None),
    "huge": lambda: answer("x" * (9 * 2**20)),
    # completions without a usable text
    "nochoices": lambda: Turn(body={**_OK.body, "choices": []}),
    "nullchoices": lambda: Turn(body={"error": {"message": "upstream died"}}),
    "odd_choices": lambda: Turn(body={**_OK.body, "choices": {"0": "hi"}}),
    "error_in_200": lambda: Turn(body={"error": {"message": "Provider returned error", "code": 502}}),
    "error_in_choice": lambda: Turn(
        body={
            **_OK.body,
            "choices": [{"error": {"code": 502, "message": "midway"}, "finish_reason": "error"}],
        }
    ),
    "nullcontent": lambda: answer(None),
    "blank": lambda: answer(" \n"),
    "thoughts_only": lambda: answer("<think>hm, hm"),
    "tool_calls": lambda: answer(None, finish="tool_calls", tool_calls=_CALLS),
    "refusal": lambda: answer(None, refusal="I cannot help with that."),
    "content_filter": lambda: answer("so far", finish="content_filter"),
    "truncated": lambda: answer("half a cha", finish="length"),
    "truncated_in_thought": lambda: answer(None, finish="length"),
    # refusals by status
    "unauthorised": lambda: error(401, "Incorrect API key provided", code="invalid_api_key"),
    "key_echo_html": lambda: Turn(500, b"<p>Authorization: {key}</p>", "text/html", echo=True),
    "key_echo": lambda: error(401, "Incorrect API key: {key}, that is {key}", echo=True),
    "payment": lambda: error(402, "Insufficient credits"),
    "forbidden": lambda: error(403, "Country, region, or territory not supported"),
    "billing": lambda: error(403, "This account's billing is not active", code="billing_not_active"),
    "no_model": lambda: error(404, "The model `fake-9` does not exist", code="model_not_found"),
    "html404": lambda: Turn(404, b"<html><title>404 Not Found</title></html>", "text/html"),
    "not_allowed": lambda: error(405, "Method not allowed"),
    "bad_request": lambda: error(400, "logit_bias: no such token", param="messages"),
    "context": lambda: error(
        400, "This model's maximum context length is 8192 tokens", code="context_length_exceeded"
    ),
    "context_413": lambda: Turn(413, b"Request Entity Too Large", "text/plain"),
    "quota": lambda: error(429, "You exceeded your current quota", code="insufficient_quota"),
    "quota_text": lambda: error(429, "Your credit balance is too low to access the API"),
    "rate_short": lambda: error(429, "slow down", headers={"retry-after": "0.02"}),
    "rate_long": lambda: error(429, "slow down", headers={"retry-after": "3600"}),
    "rate_date": lambda: error(429, "slow down", headers={"retry-after": _in(3600)}),
    "rate_nonsense": lambda: error(429, "slow down", headers={"retry-after": "soon"}),
    "rate_text": lambda: Turn(429, b"error code: 1015", "text/plain", {"retry-after": "600"}),
    "rate_google": lambda: Turn(
        429,
        [{"error": {"message": "You exceeded your current quota", "details": [{"retryDelay": "34s"}]}}],
    ),
    "r500": lambda: Turn(500, b"oops", "text/plain"),
    "r500_huge": lambda: Turn(500, b"o" * (9 * 2**20), "text/plain"),
    "html502": lambda: Turn(502, b"<html><h1>Bad Gateway</h1></html>", "text/html"),
    "r503": lambda: error(503, "overloaded"),
    "r529": lambda: error(529, "Overloaded"),
    "redirect": lambda: Turn(307, headers={"location": "/elsewhere/chat/completions"}),
    "redirect_away": lambda: Turn(308, headers={"location": "http://localhost:9/v1?{key}"}, echo=True),
    "bad_redirect": lambda: Turn(302, headers={"location": "http://[::1:bad/\xe4"}),
}
"""Every fault by name; each call makes a fresh one."""

REFUSALS: dict[str, Turn] = {
    "temperature": error(
        400,
        "Unsupported value: 'temperature' does not support 0.2 with this model.",
        param="temperature",
        code="unsupported_value",
    ),
    "reasoning_effort": error(400, "Unrecognized request argument supplied: reasoning_effort"),
    "max_completion_tokens": Turn(
        422, {"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs are not permitted"}]}
    ),
    "max_tokens": error(400, "Unsupported parameter: 'max_tokens' is not supported", param="max_tokens"),
}
"""What a server answers that does not take a parameter."""


def picky(refused: set[str], otherwise: Turn = _OK) -> Script:
    """A server that takes none of these parameters, and complains about one at a time."""

    def play(asked: Asked) -> Turn:
        found = sorted(refused & set(asked.body))
        return REFUSALS[found[0]] if found else otherwise

    return play
