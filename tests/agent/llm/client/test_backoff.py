"""Pauses between attempts, and what a server says about them."""

from __future__ import annotations

import email.utils
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.client.backoff import BackoffPolicy, retry_after_seconds


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("5", 5),
        (" 1.5 ", 1.5),
        ("0", 0),
        ("-3", None),
        ("nan", None),
        ("1e999", None),
        ("soon", None),
        ("", None),
        ("Wed, 99 Foo", None),
        ("Mon, 01 Jan 99999 00:00:00 GMT", None),
        ("1" * 5000, None),
    ],
)
def test_retry_after_as_seconds(told: str, seconds: float | None) -> None:
    assert retry_after_seconds({"retry-after": told}, b"") == seconds


def test_retry_after_as_a_date() -> None:
    def date(at: float) -> str:
        return email.utils.formatdate(at, usegmt=True)

    now = time.time()
    assert retry_after_seconds({"retry-after": date(now + 100)}, b"") == pytest.approx(100, abs=3)
    assert retry_after_seconds({"retry-after": date(now - 100)}, b"") == 0
    skewed = {"retry-after": date(now + 5000), "date": date(now + 4970)}
    assert retry_after_seconds(skewed, b"") == pytest.approx(30, abs=2)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_retry_after_breaks_anything(told: str, date: str) -> None:
    wait = retry_after_seconds({"retry-after": told, "date": date}, b"")
    assert wait is None or wait >= 0


@given(st.integers(1, 60), st.none() | st.floats(0, 1e6), st.integers())
def test_pauses_grow_up_to_a_bound_and_honour_the_server(
    attempt: int, asked: float | None, seed: int
) -> None:
    pause = BackoffPolicy(first_seconds=1, max_seconds=30).delay_seconds(attempt, asked, random.Random(seed))
    if asked is None:
        assert min(30, 2 ** (attempt - 1)) / 2 <= pause <= 30
    else:
        assert asked <= pause <= max(asked, 1) + 1
