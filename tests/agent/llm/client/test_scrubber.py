"""Secrets in texts from outside."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from hillclimb.agent.llm.client.scrubber import Scrubber
from tests.agent.llm.client.calling import CANARY, settings

HERE = settings("http://127.0.0.1/v1")


def test_every_form_of_a_secret_is_masked() -> None:
    scrubber = Scrubber(settings("https://ada:love%2Flace@host/v1"))
    pair = base64.b64encode(b"ada:love/lace").decode()
    for secret in (CANARY, CANARY.replace("/", "%2F").replace("+", "%2B"), "love/lace", "love%2Flace", pair):
        assert scrubber.scrub_line(f"a{secret}b") == "a[secret]b"
        assert secret not in scrubber.scrub_text(f"a{secret}b")


@given(st.text(max_size=600), st.integers(0, 600))
def test_a_line_is_one_printable_line_without_the_key(text: str, place: int) -> None:
    line = Scrubber(HERE).scrub_line(text[:place] + CANARY + text[place:])
    assert len(line) <= 500 and line.isprintable() and CANARY not in line and "canary" not in line


def test_a_common_word_as_a_key_stays_in_replies() -> None:
    scrubber = Scrubber(settings("http://127.0.0.1/v1", api_key=SecretStr("EMPTY")))
    assert scrubber.scrub_text("if EMPTY: return") == "if EMPTY: return"
    assert scrubber.scrub_line("EMPTY is no key") == "[secret] is no key"
