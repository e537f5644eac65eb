"""The runs of this checkout and their states, read from their ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.run import LEDGER
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.records import Record

COLUMNS = ("run", "state", "candidates", "wins", "speedup", "last line")


class RunState(Record):
    """One run at a glance."""

    run: str
    """`<family>/<case>/<tag>`."""
    state: str
    """climbing, interrupted, unfinished, what ended it, or how its ledger is damaged."""
    candidates: int
    wins: int
    speedup: float
    """The incumbent's over the baseline: measured again at the end where it was, else as measured when it was kept."""
    time: float
    """When the ledger was last written, seconds since the epoch."""


def list_states(root: Path, case: str | None) -> list[RunState]:
    """Runs below `root`/runs, the one last written to first; of one case if it is named."""
    ledgers = sorted(
        (root / "runs").glob(f"{case or '*/*'}/*/{LEDGER}"), key=lambda path: -path.stat().st_mtime
    )
    held = set(_held_inodes())
    return [_state(path, held) for path in ledgers]


def is_running(folder: Path) -> bool:
    """Whether a process holds the run in this folder at the moment."""
    lock = folder / "lock"
    return lock.exists() and lock.stat().st_ino in set(_held_inodes())


def show_states(states: list[RunState]) -> str:
    """A table, or a sentence where there is nothing."""
    if not states:
        return "no runs here yet; start one with 'hillclimb climb CASE'"
    rows = [COLUMNS, *(_row(state) for state in states)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _state(path: Path, held: set[int]) -> RunState:
    try:
        ledger = Ledger.read(path)
        word = _word(ledger, path.with_name("lock"), held)
    except HillclimbError as error:
        ledger, word = Ledger(path), f"damaged: {error}"
    return RunState(
        run="/".join(path.parts[-4:-1]),
        state=word,
        candidates=ledger.judged,
        wins=len(ledger.wins),
        speedup=ledger.cumulative,
        time=path.stat().st_mtime,
    )


def _word(ledger: Ledger, lock: Path, held: set[int]) -> str:
    if lock.exists() and lock.stat().st_ino in held:
        return "climbing"
    if ledger.finished is None:
        return "unfinished"
    return "interrupted" if ledger.finished.interrupted else f"finished: {ledger.finished.reason}"


def _held_inodes() -> Iterator[int]:
    """Inodes that some process holds locked. Trying the lock itself would get in a starting climb's way."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        yield from (int(field.rsplit(":", 1)[1]) for field in line.split() if field.count(":") == 2)


def _row(state: RunState) -> tuple[str, ...]:
    when = datetime.fromtimestamp(state.time).strftime("%Y-%m-%d %H:%M")
    return state.run, state.state, str(state.candidates), str(state.wins), f"{state.speedup:.3f}x", when
