"""Watching: a run's ledger, followed from another terminal and told as the events that its own screen shows.

Only the file is read, so watching never gets in a climb's way. What the ledger does not hold, the steps of a
measurement, is not shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.record.entries import ENTRY, Entry, ProposedEntry
from hillclimb.agent.record.run import LEDGER
from hillclimb.agent.review.ledger_events import EventConverter, turned_event
from hillclimb.agent.review.listing import is_running
from hillclimb.agent.screen.events import BaselinedEvent, Event, TroubleEvent
from hillclimb.harness.errors import UsageError

POLL_SECONDS = 0.5
MAX_SHOWN_VERDICTS = 6
"""Verdicts that are told one by one at the start; those before are summed up."""


class LedgerTail:
    """The lines of a ledger as they come: whole ones only, each once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset_bytes = path, 0

    def entries(self) -> list[Entry]:
        """What was appended since the last look. Raises UsageError for damage before the last line.

        A last line that is no entry is left for the next look: a crash tore it, and the next climb cuts it off.
        """
        content = self._content()
        found: list[Entry] = []
        lines = content.split(b"\n")[:-1]
        for number, line in enumerate(lines):
            try:
                found.append(ENTRY.validate_json(line))
            except ValidationError:
                if number + 1 < len(lines):
                    raise UsageError(
                        f"{self._path}: what was appended is no entry; watch with the version that writes it"
                    ) from None
                break
            self._offset_bytes += len(line) + 1
        return found

    def is_replaced(self) -> bool:
        """Whether the file is shorter than what was read: somebody began the run anew."""
        return self._size() < self._offset_bytes

    def _content(self) -> bytes:
        if self._size() <= self._offset_bytes:
            return b""
        with self._path.open("rb") as file:
            file.seek(self._offset_bytes)
            return file.read()

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def find_folder(root: Path, case: str | None, tag: str | None) -> Path:
    """The folder of the run last written to, of that case and tag where they are named.

    Raises UsageError where there is none; a run named by both need not have begun.
    """
    if case and tag:
        return root / "runs" / case / tag
    ledgers = (root / "runs").glob(f"{case or '*/*'}/{tag or '*'}/{LEDGER}")
    found = max(ledgers, key=lambda path: path.stat().st_mtime, default=None)
    if found is None:
        wanted = f" of {case}" if case else f" {tag!r}" if tag else ""
        raise UsageError(
            f"no run{wanted} in {root / 'runs'}; name case and tag, 'hillclimb watch CASE TAG', to wait for one"
        )
    return found.parent


def follow_run(
    folder: Path, show: Callable[[Event], None], *, once: bool, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Tell a run's past in short and then what happens, until it is finished; with `once`, the past alone.

    Raises UsageError for a ledger that is damaged. A run that has not begun is waited for.
    """
    tail, teller, said = LedgerTail(folder / LEDGER), EventConverter(folder), ""
    climbed = is_running(folder)
    _show_past(teller, tail.entries(), show)
    while True:
        finished = teller.ledger.finished
        if finished and not finished.interrupted and not climbed:
            return
        said = _show_idle(teller, climbed, said, show)
        if once:
            return
        sleep(POLL_SECONDS)
        if tail.is_replaced():
            tail, teller = LedgerTail(folder / LEDGER), EventConverter(folder)
        climbed = is_running(folder)
        for entry in tail.entries():
            for event in teller.convert(entry):
                show(event)


def _show_past(teller: EventConverter, entries: list[Entry], show: Callable[[Event], None]) -> None:
    """A summary up to the last few verdicts, then these one by one."""
    begun = [number for number, entry in enumerate(entries) if isinstance(entry, ProposedEntry)]
    start = begun[-MAX_SHOWN_VERDICTS] if len(begun) > MAX_SHOWN_VERDICTS else 0
    teller.skip(entries[:start])
    ledger, first = teller.ledger, entries[start] if start else None
    if ledger.opened:
        show(teller.summary(first.time if isinstance(first, ProposedEntry) else ledger.opened.time))
    if ledger.baselined:
        show(BaselinedEvent.of(ledger.baselined))
    if ledger.turns:
        show(turned_event(ledger.turns[-1]))
    for entry in entries[start:]:
        for event in teller.convert(entry):
            show(event)


def _show_idle(teller: EventConverter, climbed: bool, said: str, show: Callable[[Event], None]) -> str:
    """Say it once when nobody climbs; what was said."""
    opened = teller.ledger.opened
    if climbed:
        return ""
    message = (
        "nobody climbs this run at the moment; the same 'hillclimb climb' takes it up"
        if opened
        else "this run has not begun; waiting for it"
    )
    if message != said:
        show(TroubleEvent(time=time.time(), message=message))
    return message
