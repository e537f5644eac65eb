"""The text of an answer does not depend on how its tokens come."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.serving.text_stream import TextStream

PIECES = ("hi STOP\ufffd",)
LETTERS = "ab é\u20ac\U0001f600"


def spell(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def streamed(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    stream = TextStream(spell, stop)
    parts = []
    for token in text.encode():
        parts.append(stream.add(token))
        if stream.is_stopped:
            break
    return "".join(parts) + stream.end(), stream.is_stopped


@given(st.text(LETTERS, max_size=30))
def test_without_a_stop_it_is_the_whole_text(text: str) -> None:
    assert streamed(text, ()) == (text, False)


@given(st.text(LETTERS, max_size=30), st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3))
def test_it_ends_before_the_stop_that_is_whole_first(text: str, stop: list[str]) -> None:
    ends = [(text.find(one) + len(one), text.find(one)) for one in stop if one in text]
    expected = text[: min(begin for end, begin in ends if end == min(ends)[0])] if ends else text
    assert streamed(text, stop) == (expected, bool(ends))


@given(st.text(LETTERS, max_size=30), st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3))
def test_nothing_is_given_that_is_taken_back(text: str, stop: list[str]) -> None:
    stream, given_so_far = TextStream(spell, stop), ""
    whole, _ = streamed(text, stop)
    for token in text.encode():
        given_so_far += stream.add(token)
        assert whole.startswith(given_so_far)
        if stream.is_stopped:
            break


def test_a_stop_is_found_before_a_character_that_is_not_whole() -> None:
    stream = TextStream(lambda tokens: "".join(PIECES[token] for token in tokens), ("STOP",))
    assert (stream.add(0), stream.is_stopped) == ("hi ", True)


def test_no_stop_is_looked_for_where_none_may_be() -> None:
    stream = TextStream(spell, ("b",))
    assert "".join(stream.add(byte, may_stop=False) for byte in b"aba") == "aba"
    assert (stream.add(ord("b")), stream.is_stopped) == ("", True)


def test_bytes_that_are_no_character_come_at_the_end() -> None:
    stream = TextStream(spell, ())
    assert [stream.add(byte) for byte in "é".encode()[:1]] == [""]
    assert stream.end() == "\ufffd"
