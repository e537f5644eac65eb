"""Messages keep their borders; anything else is a WireError, never an exception of another kind."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.channel import wire
from tests.open_descriptors import nothing_left_open

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_messages_arrive_whole_and_apart(message: dict[str, object]) -> None:
    one, other = wire.make_pair()
    with one, other:
        wire.send(one, message)
        wire.send(one, {"next": 1})
        assert wire.receive(other)[0] == message
        assert wire.receive(other)[0] == {"next": 1}


@given(st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_object_are_refused(data: bytes) -> None:
    one, other = wire.make_pair()
    with one, other:
        one.send(data)
        try:
            message, _ = wire.receive(other)
        except wire.WireError:
            return
        assert isinstance(message, dict)


def test_a_packet_over_the_limit_is_refused() -> None:
    one, other = wire.make_pair()
    with one, other:
        one.send(b'{"x": "' + b"y" * wire.MAX_BYTES + b'"}')
        with pytest.raises(wire.WireError):
            wire.receive(other)


def test_deep_nesting_is_refused() -> None:
    one, other = wire.make_pair()
    with one, other:
        one.send(b'{"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}")
        with pytest.raises(wire.WireError):
            wire.receive(other)


def test_the_end_of_the_stream_is_an_error() -> None:
    one, other = wire.make_pair()
    one.close()
    with other, pytest.raises(wire.WireError, match="ended"):
        wire.receive(other)


def test_descriptors_nobody_asked_for_do_not_arrive() -> None:
    one, other = wire.make_pair()
    read, write = os.pipe()
    with one, other:
        wire.send(one, {"ok": True}, [read])
        with nothing_left_open(), pytest.raises(wire.WireError):
            wire.receive(other)
    os.close(read)
    os.close(write)
