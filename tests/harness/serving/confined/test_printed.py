"""Lines that a server prints, on their way to whoever listens."""

from __future__ import annotations

import os

import pytest

from hillclimb.harness.serving.confined import printed
from hillclimb.harness.serving.confined.printed import Printed


def heard(*written: bytes) -> list[str]:
    lines: list[str] = []
    pipe = Printed(lines.append)
    for piece in written:
        os.write(pipe.descriptor, piece)
    pipe.close()
    return lines


def test_lines_come_whole() -> None:
    assert heard(b"one\ntw", b"o\n", b"\nlast") == ["one", "two", "", "last"]


def test_bytes_that_are_no_text_are_told() -> None:
    assert heard(b"\xffa\n") == ["\ufffda"]


def test_a_line_without_an_end_is_cut() -> None:
    lines = heard(*[b"x" * 60000] * 4)
    assert "".join(lines) == "x" * 240000 and len(lines) > 1


def test_more_than_enough_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "MOST_BYTES", 100)
    lines = heard(*[b"0123456789\n"] * 100_000)
    assert lines[-1] == printed.DROPPED
    assert len(lines) < 100_000
