"""Shows a climb to whoever watches: a live screen, plain lines, only the news, or JSON for programs."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, TextIO

from agent.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    TroubleEvent,
    TurnedEvent,
)
from agent.lines import neutralise
from agent.scoreboard import (
    Scoreboard,
    describe_baseline,
    describe_call,
    describe_counts,
    describe_finish,
    describe_left,
    describe_opening,
    describe_progress,
    describe_turn,
    describe_verdict,
    sparkline,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_SECONDS = 0.25
"""The screen is drawn on events, so often at the most: a drawing thread would disturb what is measured."""
SPARK_WIDTH = 40


class Screen(Protocol):
    """Anything that events can be shown to, from `with` to the end of it."""

    def show(self, event: Event) -> None: ...

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Text:
    """A screen that writes lines. Where nobody reads any more, or a log's disk is full, it falls silent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: IO[str] = stream

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, event: Event) -> None:
        raise NotImplementedError

    def _write(self, line: str) -> None:
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except BrokenPipeError:
            self._stream = _silence(self._stream)
        except OSError:
            return  # a log on a full disk, a terminal that is gone: the ledger has it all


class JsonScreen(_Text):
    """One JSON object a line, as agent.events defines them."""

    def show(self, event: Event) -> None:
        self._write(event.model_dump_json())


class LineScreen(_Text):
    """One line for everything that happens but the steps of a measurement."""

    def show(self, event: Event) -> None:
        for line in self._lines(event):
            self._write(neutralise(line))

    def _lines(self, event: Event) -> list[str]:
        match event:
            case OpenedEvent():
                return [describe_opening(event)]
            case BaselinedEvent():
                return [describe_baseline(event)]
            case ProposedEvent():
                return [f"#{event.n} {event.author}: {event.idea}"]
            case JudgedEvent():
                return [f"#{event.n} {describe_verdict(event)}"]
            case TurnedEvent():
                return [describe_turn(event)]
            case CalledEvent():
                return [describe_call(event)]
            case TroubleEvent():
                return [f"trouble: {event.message}"]
            case FinishedEvent():
                return describe_finish(event)
            case ProgressEvent():
                return []


class QuietScreen(LineScreen):
    """Wins, trouble and the end."""

    def _lines(self, event: Event) -> list[str]:
        is_news = isinstance(event, TroubleEvent | FinishedEvent)
        is_win = isinstance(event, JudgedEvent) and event.kept
        return super()._lines(event) if is_news or is_win else []


class LiveScreen:
    """A panel that stays in place on a terminal: incumbent, curve, budget, what is being measured, last verdicts."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console, self._board = console, Scoreboard()
        self._ideas: dict[int, str] = {}
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._live.stop()

    def show(self, event: Event) -> None:
        with suppress(OSError):  # a terminal that is gone
            self._show(event)

    def _show(self, event: Event) -> None:
        from rich.text import Text

        self._board.update(event)
        if isinstance(event, ProposedEvent):
            self._ideas = {event.n: event.idea, **dict(list(self._ideas.items())[:20])}
        for line in self._news(event):
            self._live.console.print(Text(neutralise(line), overflow="fold"))
        self._draw(urgent=not isinstance(event, ProgressEvent))

    def _news(self, event: Event) -> list[str]:
        """What is worth staying above the panel."""
        match event:
            case OpenedEvent():
                return [describe_opening(event)]
            case BaselinedEvent():
                return [describe_baseline(event)]
            case TurnedEvent():
                return [describe_turn(event)]
            case JudgedEvent(kept=True):
                return [f"#{event.n} {describe_verdict(event)}  {self._ideas.get(event.n, '')}"]
            case TroubleEvent():
                return [f"trouble: {event.message}"]
            case FinishedEvent():
                return describe_finish(event)
        return []

    def _draw(self, *, urgent: bool) -> None:
        now = time.monotonic()
        if urgent or now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._live.update(self.render(), refresh=True)

    def render(self) -> RenderableType:
        """The panel as it stands."""
        from rich.panel import Panel
        from rich.table import Table

        board, grid = self._board, Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True, width=12)
        grid.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
        for name, value in self._rows():
            grid.add_row(name, value)
        title = f"{board.opened.case} · {board.opened.tag}" if board.opened else "hillclimb"
        return Panel(grid, title=title, title_align="left", border_style="green" if board.wins else "blue")

    def _rows(self) -> list[tuple[str, RenderableType]]:
        from rich.text import Text

        board = self._board
        best = f"{board.cumulative} over the baseline" if board.cumulative else "the baseline"
        rows: list[tuple[str, RenderableType]] = [
            ("incumbent", Text(f"{best}, {board.wins} wins", style="bold")),
            ("best so far", Text(sparkline(board.best, SPARK_WIDTH), style="green")),
            ("candidates", Text(f"{board.candidates} judged, {board.per_hour:.0f} an hour")),
        ]
        if board.left:
            rows.append(("budget left", self._budget(board)))
        rows.append(("now", Text(neutralise(self._now(board)))))
        rows.append(("this session", Text(describe_counts(board.counts))))
        for event in board.last:
            style = "green" if event.kept else "dim"
            rows.append((f"#{event.n}", Text(neutralise(describe_verdict(event)), style=style)))
        if board.trouble:
            rows.append(("trouble", Text(neutralise(board.trouble), style="red")))
        return rows

    def _budget(self, board: Scoreboard) -> RenderableType:
        from rich.text import Text

        if board.left is None:
            return Text("")
        full = round(20 * board.left.share)
        return Text(f"{'━' * full}{'─' * (20 - full)}  {describe_left(board.left)}")

    def _now(self, board: Scoreboard) -> str:
        doing = describe_progress(board.progress) or "waiting"
        if board.proposed is None:
            return doing
        return f"{doing}   #{board.proposed.n} {board.proposed.author}: {board.proposed.idea}"


def choose_screen(*, json: bool, quiet: bool) -> Screen:
    """What fits the wish and the terminal."""
    if json:
        return JsonScreen(sys.stdout)
    if quiet:
        return QuietScreen(sys.stdout)
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return LineScreen(sys.stdout)
    from rich.console import Console

    return LiveScreen(Console())


def _silence(stream: IO[str]) -> IO[str]:
    """Point the broken stream at nothing, so that Python does not complain about it at exit either."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    return stream
