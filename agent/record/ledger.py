"""The ledger: the run's append-only record and single source of truth, one JSON line an entry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.machine.disk import Disk, storage_error
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import (
    ENTRY,
    BaselinedEntry,
    BudgetsInForce,
    CalledEntry,
    ConfirmingEntry,
    DroppedEntry,
    Entry,
    FinishedEntry,
    JudgedEntry,
    NotifiedEntry,
    OpenedEntry,
    ProfiledEntry,
    ProposedEntry,
    RemeasuredEntry,
    SessionEntry,
    SettledEntry,
    TurnedEntry,
    WebhookState,
)
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Interval


@dataclass(frozen=True)
class Candidate:
    """What the ledger knows of candidate n so far."""

    n: int
    proposal: Proposal
    confirming: ConfirmingEntry | None = None
    judged: JudgedEntry | None = None
    settled: bool = False
    webhook: WebhookState | None = None
    """What became of the post about it."""


@dataclass(frozen=True)
class SessionSpan:
    """The time one controller process worked on the run: from its session line to its last line."""

    start: float
    last: float


class Ledger:
    """An open ledger: appends lines, and answers from what they add up to. Read its attributes, never write them."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path, self._disk = path, disk
        self.opened: OpenedEntry | None = None
        self.baselined: BaselinedEntry | None = None
        self.remeasured: RemeasuredEntry | None = None
        self.finished: FinishedEntry | None = None
        """How the climb ended; None again once a later one has gone on."""
        self.candidates: list[Candidate] = []
        """Candidate n stands at index n - 1."""
        self.wins: list[Candidate] = []
        """Kept and settled, oldest first."""
        self.profiles: list[ProfiledEntry] = []
        self.turns: list[TurnedEntry] = []
        """Phases of the rhythm; the last one is the present one."""
        self.calls: list[CalledEntry] = []
        """Call k stands at index k - 1."""
        self.dropped: dict[int, DroppedEntry] = {}
        """Usable replies that do not become candidates, by their calls."""
        self.candidate_by_call: dict[int, int] = {}
        """Model call -> the candidate that its reply became."""
        self.candidate_by_fingerprint: dict[str, int] = {}
        """Fingerprint -> the first candidate that had it."""
        self.confirmations = 0
        self.budgets: BudgetsInForce | None = None
        """Those of the last session that had any."""
        self.spans: list[SessionSpan] = []

    @classmethod
    def open(cls, path: Path, disk: Disk) -> Ledger:
        """Open for writing, made if missing; a line torn by a crash is cut off.

        Raises UsageError for damage anywhere else, StorageError where the disk fails.
        """
        ledger = cls(path, disk)
        content = _read(path)
        sound = len(content) - len(_torn_tail(content))
        if sound < len(content):
            disk.truncate(path, sound)
        ledger._replay(content[:sound])
        return ledger

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """What the file says, a torn last line left aside; writes nothing and cannot be appended to."""
        ledger = cls(path)
        content = _read(path)
        ledger._replay(content[: len(content) - len(_torn_tail(content))])
        return ledger

    def append(self, entry: Entry) -> None:
        """Add one line; it is on the disk, and in the attributes, when this returns."""
        if self._disk is None:
            raise UsageError(f"{self._path}: opened for reading; open it with Ledger.open to add to it")
        self._disk.append(self._path, entry.model_dump_json().encode() + b"\n")
        self._apply(entry)

    def with_entries(self, *entries: Entry) -> Ledger:
        """What this ledger would say after these lines; nothing is written, and it cannot be appended to."""
        other = Ledger(self._path)
        for name, value in vars(self).items():
            if name not in ("_disk", "_path"):
                setattr(other, name, copy(value) if isinstance(value, list | dict) else value)
        for entry in entries:
            other._apply(entry)
        return other

    @property
    def pending(self) -> Candidate | None:
        """The candidate without a verdict, or judged with its ref not known to be written; at most the last one."""
        if not self.candidates or self.candidates[-1].settled:
            return None
        return self.candidates[-1]

    @property
    def is_profiled(self) -> bool:
        """Whether the last look inside was into the incumbent."""
        return bool(self.profiles) and self.profiles[-1].commit == self.incumbent

    @property
    def incumbent(self) -> str:
        """The best commit so far: the last win's, or the base."""
        if self.wins and self.wins[-1].judged and self.wins[-1].judged.commit:
            return self.wins[-1].judged.commit
        return self.opened.base if self.opened else ""

    @property
    def cumulative_interval(self) -> Interval | None:
        """The incumbent's speedup over the baseline: as measured last, else when it was kept; None before any win."""
        if self.remeasured and self.remeasured.commit == self.incumbent:
            return self.remeasured.speedup
        return self.cumulative_when_kept

    @property
    def cumulative_when_kept(self) -> Interval | None:
        """The same as measured when the incumbent was kept, which is what the curve shows; None before any win."""
        judged = self.wins[-1].judged if self.wins else None
        return judged.cumulative if judged else None

    @property
    def cumulative(self) -> float:
        """The estimate of `cumulative_interval`; 1 before any win."""
        return self.cumulative_interval.estimate if self.cumulative_interval else 1.0

    @property
    def judged(self) -> int:
        """How many candidates have a verdict."""
        return len(self.candidates) - (1 if self.candidates and self.candidates[-1].judged is None else 0)

    @property
    def candidates_since_win(self) -> int:
        """Verdicts in a row, up to now, that were not a win."""
        return self.judged - (self.wins[-1].n if self.wins else 0)

    @property
    def tokens(self) -> int:
        """Tokens of all model calls so far."""
        return sum(call.usage.total for call in self.calls)

    @property
    def assumed_tokens(self) -> int:
        """Of them, those that no server told."""
        return sum(call.usage.assumed for call in self.calls)

    @property
    def cost(self) -> float:
        """US dollars of all model calls whose price is known."""
        return sum(call.cost or 0.0 for call in self.calls)

    def call_of(self, candidate: Candidate) -> CalledEntry | None:
        """The model call that a candidate came from."""
        k = candidate.proposal.call
        return self.calls[k - 1] if k is not None and k <= len(self.calls) else None

    def _replay(self, content: bytes) -> None:
        for number, line in enumerate(_lines(content), start=1):
            try:
                self._apply(ENTRY.validate_json(line))
            except (ValidationError, _OutOfOrder) as error:
                raise _damaged(self._path, number, error) from None

    def _apply(self, entry: Entry) -> None:
        """Take one entry into the attributes. Raises _Misplaced where it cannot follow what came before."""
        if not isinstance(entry, SessionEntry | FinishedEntry | NotifiedEntry):
            self.finished = None
        match entry:
            case OpenedEntry():
                _require(self.opened is None, "a second 'opened'")
                self.opened = entry
            case SessionEntry():
                self.spans.append(SessionSpan(entry.time, entry.time))
                self.budgets = entry.budgets or self.budgets
            case BaselinedEntry():
                self.baselined = entry
            case ProposedEntry():
                self._propose(entry)
            case ConfirmingEntry():
                self._change(entry.n, confirming=entry)
                self.confirmations = max(self.confirmations, entry.k)
            case JudgedEntry():
                self._change(entry.n, judged=entry)
            case SettledEntry():
                self._settle(entry)
            case NotifiedEntry():
                _require(entry.n <= len(self.candidates), f"a post about candidate {entry.n} before it")
                self.candidates[entry.n - 1] = replace(self.candidates[entry.n - 1], webhook=entry.webhook)
            case ProfiledEntry():
                self.profiles.append(entry)
            case TurnedEntry():
                self.turns.append(entry)
            case CalledEntry():
                _require(entry.k == len(self.calls) + 1, f"call {entry.k} out of turn")
                self.calls.append(entry)
            case DroppedEntry():
                self.dropped[entry.k] = entry
            case RemeasuredEntry():
                self.remeasured = entry
            case FinishedEntry():
                self.finished = entry
        self._extend_span(entry)

    def _propose(self, entry: ProposedEntry) -> None:
        _require(entry.n == len(self.candidates) + 1, f"candidate {entry.n} out of turn")
        _require(self.pending is None, f"candidate {entry.n} before the one before it is settled")
        self.candidates.append(Candidate(entry.n, entry.proposal))
        if entry.proposal.call is not None:
            self.candidate_by_call[entry.proposal.call] = entry.n
        if entry.proposal.fingerprint:
            self.candidate_by_fingerprint.setdefault(entry.proposal.fingerprint, entry.n)

    def _settle(self, entry: SettledEntry) -> None:
        candidate = self._last(entry.n)
        _require(candidate.judged is not None, f"candidate {entry.n} settled before it was judged")
        self.candidates[-1] = replace(candidate, settled=True, webhook=entry.webhook)
        if candidate.judged and candidate.judged.kept:
            self.wins.append(self.candidates[-1])

    def _change(self, n: int, **what: ConfirmingEntry | JudgedEntry) -> None:
        candidate = self._last(n)
        _require(candidate.judged is None, f"candidate {n} judged before")
        self.candidates[-1] = replace(candidate, **what)  # type: ignore[arg-type]

    def _last(self, n: int) -> Candidate:
        _require(
            bool(self.candidates) and self.candidates[-1].n == n, f"candidate {n} is not the last proposed"
        )
        return self.candidates[-1]

    def _extend_span(self, entry: Entry) -> None:
        time = getattr(entry, "time", None)
        if time is None or not self.spans:
            return
        last = self.spans[-1]
        self.spans[-1] = SessionSpan(last.start, max(last.last, time))


class _OutOfOrder(ValueError):
    """An entry that cannot follow those before it."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _OutOfOrder(otherwise)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error(path, error) from error


def _lines(content: bytes) -> Iterator[bytes]:
    return iter(content.split(b"\n")[:-1])


def _torn_tail(content: bytes) -> bytes:
    """What a crash in the middle of an append left: a last line without its newline, or one that is not JSON.

    A last line that is JSON but no entry is not torn: another version wrote it, and it is never cut off.
    """
    unended = content[content.rfind(b"\n") + 1 :]
    if unended or not content:
        return unended
    last = content[content.rfind(b"\n", 0, -1) + 1 :]
    try:
        json.loads(last)
    except ValueError:
        return last
    return b""


def _damaged(path: Path, number: int, error: ValueError) -> UsageError:
    what = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return UsageError(
        f"{path}: line {number} is not an entry that can stand there ({what}); "
        "restore the file from a backup, use the version that wrote it, or start a new run with --tag"
    )
