"""The judge's own client of a server: it counts tokens and time itself, and refuses who tells other counts."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

LIKELIEST = 5
"""Tokens whose logarithms are asked for, beside each one that is made."""

TOKEN = re.compile(r"token_id:(\d{1,9})")
PREFIX = b"data: "
DONE = b"[DONE]"
TimedLine = tuple[float, bytes]
"""When it came, by the judge's clock, and what it says."""

Usage = tuple[Any, Any]
"""Tokens of prompt and answer, as a server tells them: anything."""

JSON_TYPE = {"Content-Type": "application/json"}
MAX_QUOTED = 400
MAX_LINE_BYTES = 1 << 16
MAX_TOKEN_BYTES = 4096
"""Of all that is said, for each token that is asked for."""


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is asked, and as what."""

    path: Path
    """A Unix socket."""
    model: str
    seconds: float
    """For one answer, at the most."""


@dataclass(frozen=True)
class AnsweredRequest:
    """One answer, as it came. Times are the judge's, in seconds of its own clock."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    likeliest: tuple[Mapping[int, float], ...]
    """Of each token that was made: logarithms of probabilities that the server tells, its own among them."""
    sent: float
    first: float
    """When the first token was there."""
    ended: float
    first_tokens: int
    """Tokens that came with the first."""

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        """Seconds per token that came after the first ones."""
        return (self.ended - self.first) / (len(self.tokens) - self.first_tokens)

    @property
    def latency(self) -> float:
        """Seconds to the last token."""
        return self.ended - self.sent


def ask(server: ServerAddress, prompt: Sequence[int], tokens: int) -> AnsweredRequest:
    """Ask for so many tokens, the likeliest ones, as a stream. Raises CandidateFault where they do not come."""
    body = {
        "model": server.model,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "logprobs": LIKELIEST,
        "return_tokens_as_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    with UnixConnection(server) as connection:
        try:
            sent = time.perf_counter()
            connection.request("POST", "/v1/completions", json.dumps(body), JSON_TYPE)
            with connection.getresponse() as response:
                lines = _read_lines(response, tokens)
        except (OSError, ValueError, http.client.HTTPException, CandidateFault) as error:
            if connection.is_overdue:
                told = f"no answer of {tokens} tokens in {server.seconds:g} s"
                raise CandidateFault(Reason.HUNG, told) from None
            if isinstance(error, CandidateFault):
                raise
            _refuse(f"the connection failed: {type(error).__name__}: {error}")
    return _read_answer(tuple(prompt), tokens, sent, lines)


class UnixConnection(http.client.HTTPConnection):
    """To a Unix socket, and broken off when its time is up, however slowly the other side says what.

    By HTTP/1.0, in which an answer is not in chunks of sizes that the other side tells.
    """

    _http_vsn, _http_vsn_str = 10, "HTTP/1.0"

    def __init__(self, server: ServerAddress) -> None:
        super().__init__("server")
        self._server, self._stream = server, socket.socket(socket.AF_UNIX)
        self._timer = threading.Timer(server.seconds, self._break_off)
        self.is_overdue = False

    def __enter__(self) -> UnixConnection:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self.close()
        self._stream.close()

    def connect(self) -> None:
        """The base class forgets its socket, and closes it, before an answer is read."""
        self._stream.settimeout(self._server.seconds)  # breaking off would not wake it
        self._stream.connect(str(self._server.path))
        self._stream.settimeout(None)
        self.sock = self._stream.dup()

    def _break_off(self) -> None:
        self.is_overdue = True
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)


def _read_lines(response: http.client.HTTPResponse, tokens: int) -> list[TimedLine]:
    """What the server says, each event with when it came, up to the end."""
    if response.chunked:
        _refuse("answered in chunks, and was asked by HTTP/1.0")
    if response.status != 200:
        told = response.read(MAX_QUOTED).decode(errors="replace")
        _refuse(f"answered with status {response.status}: {told}")
    lines: list[TimedLine] = []
    left = MAX_LINE_BYTES + tokens * MAX_TOKEN_BYTES
    while line := response.readline(MAX_LINE_BYTES):
        now = time.perf_counter()
        left -= len(line)
        if left < 0 or not line.endswith(b"\n"):
            _refuse("a line or an answer is too long")
        if not (line := line.strip()):
            continue
        if not line.startswith(PREFIX):
            _refuse(f"a line of the stream is {line[:80]!r}")
        if line == PREFIX + DONE:
            break
        lines.append((now, line.removeprefix(PREFIX)))
    else:
        last = lines[-1][1][:MAX_QUOTED].decode(errors="replace") if lines else "nothing"
        _refuse(f"the stream ended before [DONE], after {last}")
    return lines


def _read_answer(
    prompt: tuple[int, ...], wanted: int, sent: float, lines: Sequence[TimedLine]
) -> AnsweredRequest:
    found: list[int] = []
    likeliest: list[Mapping[int, float]] = []
    times: list[float] = []
    first_tokens = 0
    usage: Usage | None = None
    for when, line in lines:
        chunk = _read_chunk(line)
        for token, told in chunk.tokens:
            found.append(token)
            likeliest.append(told)
            times.append(when)
        first_tokens = first_tokens or len(found)
        usage = chunk.usage or usage
    if len(found) != wanted:
        _refuse(f"made {len(found)} tokens, and was asked for {wanted}", Reason.TOKEN_COUNT)
    if usage not in (None, (len(prompt), wanted)):
        told_usage = f"tells a usage of {usage} tokens, and read and made {(len(prompt), wanted)}"
        _refuse(told_usage, Reason.TOKEN_COUNT)
    if first_tokens == wanted:
        _refuse(f"sent all {wanted} tokens at once, and was asked for a stream")
    return AnsweredRequest(prompt, tuple(found), tuple(likeliest), sent, times[0], times[-1], first_tokens)


class ReadChunk(NamedTuple):
    """What one event of a stream says."""

    tokens: Sequence[tuple[int, Mapping[int, float]]]
    """Each with what is told of the likeliest."""
    usage: Usage | None


def _read_chunk(line: bytes) -> ReadChunk:
    try:
        chunk = json.loads(line)
        choices, told_usage = chunk["choices"], chunk.get("usage")
        usage = (told_usage["prompt_tokens"], told_usage["completion_tokens"]) if told_usage else None
        if not choices or not (logprobs := choices[0]["logprobs"]):
            return ReadChunk([], usage)
        pairs = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
        return ReadChunk([(_token(name), _likeliest(told)) for name, told in pairs], usage)
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        shown = line[:120].decode(errors="replace")
        _refuse(f"a chunk cannot be read ({type(error).__name__}: {error}): {shown}")


def _likeliest(told: Mapping[str, Any]) -> Mapping[int, float]:
    found = {_token(name): value for name, value in told.items()}
    for value in found.values():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is no logarithm")
    return {token: float(value) for token, value in found.items()}


def _token(name: str) -> int:
    if not (match := TOKEN.fullmatch(name)):
        raise ValueError(f"{name[:40]!r} is no token")
    return int(match[1])


def _refuse(detail: str, reason: Reason = Reason.BROKE_PROTOCOL) -> NoReturn:
    """Control characters of a server's are not told on."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in detail)
    raise CandidateFault(reason, shown[:600])
