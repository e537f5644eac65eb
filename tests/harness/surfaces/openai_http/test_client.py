"""What servers may say, and how the judge's client takes it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.surfaces.openai_http.client import ServerAddress, ask

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunk(*tokens: int, logprob: object = -0.5) -> bytes:
    """An event with so many tokens."""
    names = [f"token_id:{token}" for token in tokens]
    likeliest = [{name: logprob, "token_id:0": -3.5} for name in names]
    choice = {"text": "", "logprobs": {"tokens": names, "top_logprobs": likeliest}}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def usage(prompt: object, answer: object) -> bytes:
    """The event at the end that tells what was read and made."""
    told = {"prompt_tokens": prompt, "completion_tokens": answer}
    return b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@contextmanager
def saying(folder: Path, *parts: bytes, pause: float = 0.01) -> Iterator[ServerAddress]:
    """A server that says these parts to whoever asks, and then nothing more."""
    path = folder / "socket"

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            while not asked or b"}" not in asked[-1]:
                asked.append(connection.recv(1 << 16))
            try:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause)
            except OSError:
                return

    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        yield ServerAddress(path, "m", 1.0)
        thread.join()
    body = b"".join(asked)
    assert b'"max_tokens": 3' in body and b'"ignore_eos": true' in body


def test_tokens_and_times_are_counted_here(tmp_path: Path) -> None:
    with saying(tmp_path, HEAD, chunk(5), chunk(6), chunk(7), usage(2, 3), DONE, pause=0.05) as server:
        found = ask(server, [1, 2], 3)
    assert (found.prompt, found.tokens, found.first_tokens) == ((1, 2), (5, 6, 7), 1)
    assert found.likeliest[1] == {6: -0.5, 0: -3.5}
    assert found.latency >= found.ttft + 0.06 and found.tpot >= 0.03


def test_tokens_that_come_together_count_once_they_are_there(tmp_path: Path) -> None:
    with saying(tmp_path, HEAD, chunk(5, 6), chunk(7), DONE, pause=0.05) as server:
        found = ask(server, [1], 3)
    assert found.first_tokens == 2
    assert found.tpot >= 0.03


MISCOUNTED = {
    "fewer tokens": ([HEAD, chunk(5), chunk(6), DONE], "made 2 tokens, and was asked for 3"),
    "more tokens": ([HEAD, chunk(5), chunk(6), chunk(7, 8), DONE], "made 4 tokens"),
    "empty tokens": ([HEAD, chunk(), chunk(), chunk(), DONE], "made 0 tokens"),
    "forged usage": ([HEAD, *map(chunk, (5, 6, 7)), usage(1, 99)], r"usage of \(1, 99\)"),
    "forged usage of the prompt": ([HEAD, *map(chunk, (5, 6, 7)), usage(0, 3)], r"usage of \(0, 3\)"),
    "a usage that is none": ([HEAD, *map(chunk, (5, 6, 7)), usage("1", [3])], "usage of"),
    "usage twice": ([HEAD, *map(chunk, (5, 6, 7)), usage(1, 3), usage(1, 4)], r"usage of \(1, 4\)"),
}

MALFORMED = {
    "a usage without counts": ([HEAD, b'data: {"choices": [], "usage": {"a": 1}}\n\n'], "KeyError"),
    "all at once": ([HEAD, chunk(5, 6, 7), DONE], "sent all 3 tokens at once"),
    "no end": ([HEAD, chunk(5), chunk(6), chunk(7)], "ended before"),
    "nothing": ([b""], "connection failed"),
    "another status": ([b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\nno\x1b!"], "status 500: no\ufffd!"),
    "no events": ([HEAD, b"12\n"], "a line of the stream"),
    "no JSON": ([HEAD, b"data: {\n\n"], "cannot be read"),
    "a list": ([HEAD, b"data: []\n\n"], "cannot be read"),
    "deep": ([HEAD, b"data: " + b"[" * 5000 + b"\n\n"], "cannot be read"),
    "no names of tokens": ([HEAD, chunk(5).replace(b"token_id:5", b"five")], "is no token"),
    "no logarithms": ([HEAD, chunk(5).replace(b"top_logprobs", b"none")], "KeyError"),
    "a logarithm that is none": ([HEAD, chunk(5, logprob="0")], "is no logarithm"),
    "NaN": ([HEAD, chunk(5, logprob=float("nan"))], "is no logarithm"),
    "a long number": ([HEAD, chunk(5, logprob=-(10**400))], "OverflowError"),
    "chunks": ([CHUNKED, b"-1\r\n", b"x" * 100000], "in chunks"),
    "chunks of a failure": ([CHUNKED.replace(b"200", b"500"), b"-5\r\n"], "in chunks"),
    "a long line": ([HEAD, b"data: " + b"x" * (1 << 17)], "too long"),
    "a flood": ([HEAD, *[b"data: " + b"x" * 60000 + b"\n"] * 9], "too long"),
}


@pytest.mark.parametrize(("parts", "told"), MISCOUNTED.values(), ids=MISCOUNTED)
def test_tokens_that_are_told_and_not_made_are_counted(tmp_path: Path, parts: list[bytes], told: str) -> None:
    with (
        saying(tmp_path, *parts, DONE) as server,
        pytest.raises(CandidateFault, match=told) as caught,
    ):
        ask(server, [1], 3)
    assert caught.value.reason is Reason.TOKEN_COUNT


@pytest.mark.parametrize(("parts", "told"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_told(tmp_path: Path, parts: list[bytes], told: str) -> None:
    end = b"" if "ended" in told else DONE
    with (
        saying(tmp_path, *parts, end) as server,
        pytest.raises(CandidateFault, match=told) as caught,
    ):
        ask(server, [1], 3)
    assert caught.value.reason is Reason.BROKE_PROTOCOL


@pytest.mark.parametrize("slow", ["silent", "a byte at a time"])
def test_one_that_takes_too_long_is_broken_off(tmp_path: Path, slow: str) -> None:
    parts = [b" "] * 40 if slow == "a byte at a time" else [b""] * 40
    with saying(tmp_path, HEAD, b"data: ", *parts, pause=0.1) as server:
        began = time.monotonic()
        with pytest.raises(CandidateFault) as caught:
            ask(server, [1], 3)
        assert time.monotonic() - began < 3
    assert caught.value.reason is Reason.HUNG


def test_one_that_takes_no_connection_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as other:
        listening.bind(str(path))
        listening.listen(0)
        other.connect(str(path))
        with pytest.raises(CandidateFault) as caught:
            ask(ServerAddress(path, "m", 0.5), [1], 3)
    assert caught.value.reason in (Reason.BROKE_PROTOCOL, Reason.HUNG)
