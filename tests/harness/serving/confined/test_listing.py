"""What a watched server answers when it is asked what ran, whatever its profilers see."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from hillclimb.harness.candidate.gpu_profiler import NothingTraced
from hillclimb.harness.candidate.profiler import ProfileRow
from hillclimb.harness.channel import wire
from hillclimb.harness.serving.confined.listing import answer_lists

Work = Callable[[], int]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = wire.make_pair()
    with ours, theirs:
        ours.settimeout(20)
        yield ours, theirs


def sees_something(work: Work, kept: frozenset[str]) -> list[ProfileRow]:
    return [(sorted(kept)[0], 0.5, work() / 1e9, 3.0)]


def cannot_begin(work: Work, kept: frozenset[str]) -> list[ProfileRow]:
    raise NothingTraced("no profiler")


def sees_nothing(work: Work, kept: frozenset[str]) -> list[ProfileRow]:
    work()
    raise NothingTraced("saw no kernel")


def sees_it_the_second_time(work: Work, kept: frozenset[str]) -> list[ProfileRow]:
    work()
    return [("second", 0.5, work() / 1e9, 1.0)]


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (sees_something, ["gemv"]),
        (cannot_begin, []),
        (sees_nothing, []),
        (sees_it_the_second_time, ["second"]),
    ],
)
def test_beginning_and_end_are_answered_each_time(
    ends: tuple[socket.socket, socket.socket],
    listed: Callable[[Work, frozenset[str]], list[ProfileRow]],
    names: list[str],
) -> None:
    ours, theirs = ends
    answer_lists(theirs, listed)
    for _ in range(2):
        wire.send(ours, {"op": "list", "kept": ["gemv"]})
        assert wire.receive(ours)[0] == {"ok": True}
        wire.send(ours, {"op": "end"})
        told = wire.receive(ours)[0]
        assert [row[0] for row in told["rows"]] == names
