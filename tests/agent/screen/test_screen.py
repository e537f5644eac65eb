"""Every screen over a real climb's events; what they say, and that a reader who leaves does not end the climb."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console

from hillclimb.agent.screen.durations import describe_span
from hillclimb.agent.screen.events import (
    EVENT,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    TroubleEvent,
)
from hillclimb.agent.screen.scoreboard import Scoreboard, describe_counts, sparkline
from hillclimb.agent.screen.screen import (
    JsonScreen,
    LineScreen,
    LiveScreen,
    QuietScreen,
    Screen,
    choose_screen,
)
from tests.agent.climb.climbed import climb_toy


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    trouble = TroubleEvent(time=0.0, message="the disk is full [red]")
    progress = ProgressEvent(time=0.0, n=3, stage="decide", done=3, of=20, speedup=1.0234)
    return [*climb_toy(tmp_path_factory.mktemp("climb"))[:-1], progress, trouble]


def shown(screen: Screen, events: list[Event], stream: io.StringIO) -> str:
    with screen:
        for event in events:
            screen.show(event)
    return stream.getvalue()


def test_json_is_one_event_a_line(events: list[Event]) -> None:
    stream = io.StringIO()
    lines = shown(JsonScreen(stream), events, stream).splitlines()
    assert [EVENT.validate_json(line) for line in lines] == events
    assert json.loads(lines[0])["event"] == "opened"


def test_lines_name_every_candidate_and_leave_progress_out(events: list[Event]) -> None:
    stream = io.StringIO()
    text = shown(LineScreen(stream), events, stream)
    assert text.startswith("demo/toy: run first, branch hillclimb/demo/toy/first; judged on")
    for event in events:
        if isinstance(event, JudgedEvent):
            assert f"#{event.n} " in text
    assert "trouble: the disk is full [red]" in text
    assert "decide 3/20" not in text


def test_phases_of_a_measurement_go_to_a_stream_of_their_own(events: list[Event]) -> None:
    told, phases = io.StringIO(), io.StringIO()
    screen = LineScreen(told, phases)
    for event in events:
        screen.show(event)
    assert "phase:" not in told.getvalue()
    lines = phases.getvalue().splitlines()
    assert lines[:2] == ["phase: gate", "phase: noise"]
    assert "phase: #1 gate" in lines and "phase: #1 screen" in lines
    assert len(lines) == len([a for a, b in zip(lines, [*lines[1:], ""], strict=True) if a != b])


def test_a_run_that_ended_before_its_baseline_was_not_begun() -> None:
    told = io.StringIO()
    LineScreen(told).show(
        FinishedEvent(
            time=1.0,
            reason="interrupted by SIGINT",
            interrupted=True,
            begun=False,
            candidates=0,
            wins=0,
            cumulative=None,
            importances={},
            branch="b",
            folder="f",
        )
    )
    assert told.getvalue().splitlines() == [
        "ended: interrupted by SIGINT",
        "nothing was begun: the baseline was not measured yet; the same command begins",
    ]


def test_the_opening_says_where_ideas_come_from(events: list[Event]) -> None:
    opened = next(event for event in events if isinstance(event, OpenedEvent))
    told = opened.model_copy(update={"sources": "ideas come from the sweep alone"})
    stream = io.StringIO()
    assert "; ideas come from the sweep alone\n" in shown(LineScreen(stream), [told], stream)


def test_what_is_left_to_be_said_of_a_win_is_said(events: list[Event]) -> None:
    win = next(event for event in events if isinstance(event, JudgedEvent) and event.kept)
    stream = io.StringIO()
    told = shown(QuietScreen(stream), [win.model_copy(update={"detail": "nobody looked"})], stream)
    assert told.endswith("; nobody looked\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("make", [LineScreen, JsonScreen])
def test_a_log_on_a_full_disk_ends_nothing(make: Callable[[TextIO], Screen], events: list[Event]) -> None:
    stream = open("/dev/full", "w")  # noqa: PTH123, SIM115 closed below, which the full disk refuses
    with make(stream) as screen:
        for event in events:
            screen.show(event)
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_terminal_that_is_gone_ends_nothing(events: list[Event]) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        with LiveScreen(Console(file=terminal, force_terminal=True)) as screen:
            screen.show(events[0])
            os.close(ours)
            for event in events[1:]:
                screen.show(event)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(theirs, b"x")


def test_quiet_shows_wins_and_trouble_only(events: list[Event]) -> None:
    stream = io.StringIO()
    lines = shown(QuietScreen(stream), events, stream).splitlines()
    wins = [event for event in events if isinstance(event, JudgedEvent) and event.kept]
    assert wins
    assert len(lines) == len(wins) + 1
    assert all(" kept " in line for line in lines[:-1])


def test_the_live_panel_shows_what_matters(events: list[Event]) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system=None)
    screen = LiveScreen(console)
    shown(screen, events, stream)
    plain = Console(file=io.StringIO(), width=100, color_system=None)
    with plain.capture() as capture:
        plain.print(screen.render())
    panel = capture.get()
    for part in (
        "demo/toy · first",
        "over the baseline",
        "budget left",
        "candidates",
        "kept ",
        "decide 3/20  1.023x",
    ):
        assert part in panel
    assert "█" in panel
    assert "the disk is full [red]" in panel
    assert max(len(line) for line in panel.splitlines()) <= 100


def test_the_live_panel_stands_before_anything_happened() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    with LiveScreen(console) as screen:
        assert isinstance(screen, LiveScreen)
        console.print(screen.render())


def test_a_reader_that_leaves_does_not_end_the_climb(events: list[Event]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, LineScreen(stream) as screen:
        for event in events:
            screen.show(event)


def test_choice_follows_the_wish_and_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(choose_screen(json=True, quiet=True), JsonScreen)
    assert isinstance(choose_screen(json=False, quiet=True), QuietScreen)
    assert type(choose_screen(json=False, quiet=False)) is LineScreen


def test_the_board_counts_what_happened(events: list[Event]) -> None:
    board = Scoreboard()
    for event in events:
        board.update(event)
    verdicts = [event for event in events if isinstance(event, JudgedEvent)]
    assert board.candidates == len(verdicts)
    assert board.wins == board.counts["kept"] == sum(event.kept for event in verdicts)
    assert board.best[-1] == max(board.best) > 1


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [([], 5, ""), ([1.0], 5, "▁"), ([1.0, 1.0], 5, "▁▁"), ([1, 2], 5, "▁█"), ([1, 2, 3, 4, 5], 3, "▁▅█")],
)
def test_sparkline(values: list[float], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars


def test_sparkline_never_exceeds_its_width() -> None:
    assert len(sparkline([float(i) for i in range(1000)], 40)) == 40


def test_words_for_figures() -> None:
    assert [describe_span(s) for s in (5, 65, 3665)] == ["5 s", "1 min 05 s", "1 h 01 min"]
    assert describe_counts(Counter({"slower": 3, "kept": 1})) == "kept 1 · slower 3"


def test_trouble_stays_until_work_goes_on() -> None:
    board = Scoreboard()
    measuring = ProgressEvent(time=1.0, n=1, stage="screen", done=1, of=2, speedup=None)
    board.update(TroubleEvent(time=0.0, message="no space"))
    board.update(measuring)
    assert board.trouble == "no space"
    board.update(measuring.model_copy(update={"time": 31.0}))
    assert board.trouble == ""


def test_a_long_reason_is_wrapped_and_not_cut(events: list[Event]) -> None:
    judged = next(event for event in events if isinstance(event, JudgedEvent) and not event.kept)
    reason = " ".join(f"word{n}" for n in range(40)) + " the-end"
    stream = io.StringIO()
    screen = LiveScreen(Console(file=stream, width=60, height=60, force_terminal=True))
    with screen:
        screen.show(judged.model_copy(update={"detail": reason}))
    assert "the-end" in stream.getvalue()


def test_a_narrower_terminal_leaves_no_rows_of_the_old_panel(events: list[Event]) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=100, height=60, force_terminal=True)
    screen = LiveScreen(console)
    with screen:
        screen.show(events[0])
        height, begin = screen._drawn[1], len(stream.getvalue())
        console.width = 50
        screen.show(next(event for event in events if isinstance(event, ProposedEvent)))
        ups = stream.getvalue()[begin:].split("incumbent")[0].count("\x1b[1A")
    assert ups == 2 * height - 1
