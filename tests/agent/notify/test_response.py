"""What replies mean, whatever they look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from hillclimb.agent.notify.response import read_answer

CANARY = "canary-token"


def read(status: int, body: bytes = b"", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_answer(status, CaseInsensitiveDict(named), body)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"id": "1"}', "sent"),
        (204, b"", "sent"),
        (200, b"ok", "sent"),
        (200, b"\n <html>", "failed"),
        (302, b"", "failed"),
        (400, b'{"embeds": ["0"]}', "refused"),
        (400, b'{"code": 10015}', "gone"),
        (401, b"", "gone"),
        (403, b"", "gone"),
        (404, b"<html>", "gone"),
        (408, b"", "failed"),
        (413, b"", "refused"),
        (429, b"error code: 1015", "limited"),
        (500, b"", "failed"),
        (502, b"<html>", "failed"),
    ],
)
def test_kinds(status: int, body: bytes, kind: str) -> None:
    assert read(status, body).kind == kind


def test_a_page_is_known_by_its_type() -> None:
    assert read(200, b"welcome", Content_Type="text/HTML; charset=utf-8").kind == "failed"


@pytest.mark.parametrize(
    ("body", "headers", "pause"),
    [
        (b'{"retry_after": 0.3}', {}, 0.3),
        (b'{"retry_after": 0.3}', {"Retry_After": "1"}, 1.0),
        (b"error code: 1015", {"Retry_After": "600"}, 600.0),
        (b"", {"X_RateLimit_Reset_After": "2.5"}, 2.5),
        (b"", {"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        (b'{"retry_after": -1}', {"Retry_After": "nan"}, None),
        (b'{"retry_after": "soon"}', {"Retry_After": "inf"}, None),
        (b'{"retry_after": [1]}', {}, None),
        (b"[1]", {}, None),
        (b"[" * 100000, {}, None),
        (b'{"retry_after": 1' + b"0" * 400 + b"}", {}, None),
    ],
)
def test_the_wait_that_is_asked_for(body: bytes, headers: dict[str, str], pause: float | None) -> None:
    assert read(429, body, **headers).pause_seconds == pause


def test_an_emptied_bucket_is_waited_for() -> None:
    assert read(204, X_RateLimit_Remaining="0", X_RateLimit_Reset_After="1.5").pause_seconds == 1.5
    assert read(204, X_RateLimit_Remaining="3", X_RateLimit_Reset_After="1.5").pause_seconds is None


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
def test_nothing_that_was_said_is_quoted(status: int) -> None:
    said = {"message": CANARY, "code": CANARY, "retry_after": CANARY}
    for body in (json.dumps(said).encode(), f"<html>{CANARY}".encode()):
        assert CANARY not in str(read(status, body, Retry_After=CANARY))


@given(st.integers(100, 599), st.binary(max_size=80), st.text(max_size=20))
def test_any_reply_has_a_meaning(status: int, body: bytes, header: str) -> None:
    answer = read_answer(status, {"retry-after": header, "x-ratelimit-reset-after": header}, body)
    assert answer.pause_seconds is None or answer.pause_seconds >= 0
