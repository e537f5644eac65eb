"""Shows a climb to whoever watches: a live screen, plain lines, only the news, or JSON for programs."""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from hillclimb.agent.screen.escaping import escape_unprintable
from hillclimb.agent.screen.events import (
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
from hillclimb.agent.screen.scoreboard import (
    Scoreboard,
    describe_baseline,
    describe_call,
    describe_counts,
    describe_finish,
    describe_left,
    describe_progress,
    describe_session,
    describe_turn,
    describe_verdict,
    sparkline,
)
from hillclimb.harness.wording import count

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


class LineStream(Protocol):
    """What lines can be written to."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


class _LineScreen:
    """A screen that writes lines. Where nobody reads any more, or a log's disk is full, it falls silent."""

    def __init__(self, stream: LineStream) -> None:
        self._stream = stream

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


class JsonScreen(_LineScreen):
    """One JSON object a line, as hillclimb.agent.screen.events defines them."""

    def show(self, event: Event) -> None:
        self._write(event.model_dump_json())


class LineScreen(_LineScreen):
    """One line for everything that happens; of a measurement each phase, on a stream of its own."""

    def __init__(self, stream: LineStream, phases: LineStream | None = None) -> None:
        super().__init__(stream)
        self._phases, self._phase = None if phases is None else _LineScreen(phases), ""

    def show(self, event: Event) -> None:
        if isinstance(event, ProgressEvent):
            self._show_phase(f"#{event.n} {event.stage}" if event.n else event.stage)
        for line in self._lines(event):
            self._write(escape_unprintable(line))

    def _show_phase(self, phase: str) -> None:
        if self._phases and phase != self._phase:
            self._phase = phase
            self._phases._write(f"phase: {phase}")

    def _lines(self, event: Event) -> list[str]:
        match event:
            case OpenedEvent():
                return describe_session(event)
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
        self._last_drawn_at = 0.0
        self._drawn = (0, 0)
        """Width of the terminal when the panel was drawn last, and the panel's height."""

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
            self._live.console.print(Text(escape_unprintable(line), overflow="fold"))
        self._draw(urgent=not isinstance(event, ProgressEvent))

    def _news(self, event: Event) -> list[str]:
        """What is worth staying above the panel."""
        match event:
            case OpenedEvent():
                return describe_session(event)
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
        if urgent or now - self._last_drawn_at >= REFRESH_SECONDS:
            self._last_drawn_at = now
            self._erase_wrapped_rows()
            panel = self.render()
            self._live.update(panel, refresh=True)
            self._drawn = self._console.width, len(self._console.render_lines(panel))

    def _erase_wrapped_rows(self) -> None:
        """On a terminal that became narrower, the rows into which the panel's lines broke."""
        from rich.control import Control
        from rich.segment import ControlType

        width, height = self._drawn
        rows_each = -(-width // max(self._console.width, 1))
        more = min(height, self._console.height) * (rows_each - 1)
        if more > 0 and self._console.is_terminal:
            row = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(ControlType.CARRIAGE_RETURN, *(row * more)))

    def render(self) -> RenderableType:
        """The panel as it stands."""
        from rich.panel import Panel
        from rich.table import Table

        board, grid = self._board, Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True, width=12)
        grid.add_column(ratio=1, overflow="fold")
        for name, value in self._rows():
            grid.add_row(name, value)
        title = f"{board.opened.case} · {board.opened.tag}" if board.opened else "hillclimb"
        return Panel(grid, title=title, title_align="left", border_style="green" if board.wins else "blue")

    def _rows(self) -> list[tuple[str, RenderableType]]:
        from rich.text import Text

        board = self._board
        best = f"{board.cumulative} over the baseline" if board.cumulative else "the baseline"
        rows: list[tuple[str, RenderableType]] = [
            ("incumbent", Text(f"{best}, {count(board.wins, 'win')}", style="bold")),
            ("best so far", Text(sparkline(board.best, SPARK_WIDTH), style="green")),
            ("candidates", Text(f"{board.candidates} judged, {board.per_hour:.0f} an hour")),
        ]
        if board.left:
            rows.append(("budget left", self._budget(board)))
        rows.append(("now", Text(escape_unprintable(self._now(board)))))
        rows.append(("this session", Text(describe_counts(board.counts))))
        for event in board.last:
            style = "green" if event.kept else "dim"
            rows.append((f"#{event.n}", Text(escape_unprintable(describe_verdict(event)), style=style)))
        if board.trouble:
            rows.append(("trouble", Text(escape_unprintable(board.trouble), style="red")))
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
        return LineScreen(sys.stdout, sys.stderr)
    from rich.console import Console

    return LiveScreen(Console())


def _silence(stream: LineStream) -> LineStream:
    """Point the broken stream at nothing, so that Python does not complain about it at exit either."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    if isinstance(stream, io.TextIOBase):
        os.dup2(nothing, stream.fileno())
    return stream
