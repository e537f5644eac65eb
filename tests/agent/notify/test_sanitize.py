"""Foreign text in a post shows as it is and does nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from hillclimb.agent.notify.sanitize import clip, code, plain, redact, units

TOKEN = "Tok-en_of-at.least-some-length0123"
URL = f"https://discord.com/api/webhooks/123456789012345678/{TOKEN}"
GAP = "\u200b"


@pytest.mark.parametrize("mention", ["@everyone", "@here", "<@123>", "<@&123>", "<@!1>"])
def test_nobody_is_mentioned(mention: str) -> None:
    shown = plain(f"faster {mention}")
    assert mention not in shown
    assert f"@{GAP}" in shown


@pytest.mark.parametrize(
    "markup", ["*bold*", "_x_", "~~x~~", "`x`", "||x||", "[a](b)", "# big", "> quote", "- list", "<t:1>"]
)
def test_markup_is_escaped(markup: str) -> None:
    assert re.sub(r"\\(.)", r"\1", plain(markup)) == markup
    assert plain(markup) != markup


def test_no_link_is_made() -> None:
    assert "://" not in plain("see https://evil.example/x")


@pytest.mark.parametrize("char", ["\0", "\x1b", "\x07", "\u202e", "\u200f", "\ud800", "\ue000"])
def test_characters_that_are_not_seen_go(char: str) -> None:
    assert plain(f"a{char}b") == "ab"


def test_blanks_become_one() -> None:
    assert plain(" a\r\n\t b\u2028c ") == "a b c"


def test_code_cannot_be_left() -> None:
    assert code("a`b``c\nd") == "`a'b''c d`"
    assert code("") == ""


@given(st.text(), st.integers(2, 50))
def test_a_clipped_text_is_never_longer(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert units(clipped) <= limit
    assert clipped == text or clipped.endswith("…")


@given(st.text(alphabet="ab*_`\\[@<", max_size=60), st.integers(2, 40))
def test_clipping_leaves_no_half_escape(text: str, limit: int) -> None:
    clipped = clip(plain(text), limit)
    before = clipped.removesuffix("…")
    assert (len(before) - len(before.rstrip("\\"))) % 2 == 0


@given(st.text())
def test_any_text_can_be_sent(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert "\n" not in shown
    assert not re.search(r"@(everyone|here)", shown)


@pytest.mark.parametrize(
    "found", [URL, f"x{URL}x", TOKEN, f"/api/webhooks/123456789012345678/{TOKEN}?wait=True"]
)
def test_a_secret_is_blotted_out(found: str) -> None:
    assert TOKEN not in redact(f"error at {found}: failed", [SecretStr(URL)])


def test_a_key_is_blotted_out_and_words_of_an_address_are_not() -> None:
    assert "sk-0123456789" not in redact("bad key sk-0123456789", [SecretStr("sk-0123456789")])
    assert redact("the webhooks api of discord.com", [SecretStr(URL)]) == "the webhooks api of discord.com"
    assert redact("a short one", [SecretStr("none"), SecretStr("")]) == "a short one"
