"""A run's folder: its name, its owner, its ledger. `<repository>/runs/<family>/<case>/<tag>/`.

ledger.jsonl   the record            samples/   raw pairs of every candidate, one file each
lock           who climbs            trees/     materialised candidates
results.tsv, progress.png, study.db  views      judge.log  what the judge printed
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.git.repository import Repository, is_ref
from hillclimb.agent.git.trees import MaterialisedTrees
from hillclimb.agent.machine.clock import Clock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.branch import Branch
from hillclimb.agent.record.entries import ENTRY, Entry, FinishedEntry, NotifiedEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.errors import UsageError

LEDGER = "ledger.jsonl"
TAG_VARIABLE = "HILLCLIMB_RUN_TAG"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TAIL_BYTES = 65536


@dataclass(frozen=True)
class Run:
    """An open run; this process owns it."""

    repository: Repository
    disk: Disk
    case: str
    """`<family>/<case>`."""
    tag: str
    folder: Path
    ledger: Ledger
    branch: Branch
    trees: MaterialisedTrees

    @property
    def name(self) -> str:
        return f"{self.case}/{self.tag}"

    def write_samples(self, name: str, text: str) -> None:
        """Put raw measurements beside the ledger, whole or not at all."""
        folder = self.folder / "samples"
        self.disk.make_folder(folder)
        self.disk.replace(folder / f"{name}.json", text.encode())


@contextmanager
def open_run(repository: Repository, case: str, tag: str, disk: Disk, clock: Clock) -> Iterator[Run]:
    """Own the run while entered; it is made if it does not exist.

    Raises UsageError, naming the owner, if another process owns it.
    """
    folder = run_folder(repository, case, tag)
    disk.make_folder(folder)
    lock = _acquire_lock(folder / "lock", disk, clock)
    try:
        _write_gitignore(repository, folder, disk)
        ledger = Ledger.open(folder / LEDGER, disk)
        trees = MaterialisedTrees(repository, disk, folder / "trees")
        yield Run(repository, disk, case, tag, folder, ledger, Branch(repository, case, tag), trees)
    finally:
        os.close(lock)


def run_folder(repository: Repository, case: str, tag: str) -> Path:
    """Where a run lies. Raises UsageError for names that cannot stand in a ref."""
    for part in (*case.split("/"), tag):
        if not is_ref(part):
            raise UsageError(
                f"{part!r} cannot be part of a branch's name; use letters, digits, '_', '-' and '.', at most 100"
            )
    return repository.root / "runs" / case / tag


def choose_tag(repository: Repository, case: str, given: str | None, clock: Clock) -> str:
    """The tag asked for, else $HILLCLIMB_RUN_TAG, else the newest unfinished run's, else today's date."""
    return (
        given
        or os.environ.get(TAG_VARIABLE)
        or _newest_unfinished(repository, case)
        or _today(repository, case, clock)
    )


def list_runs(repository: Repository, case: str) -> list[Path]:
    """The folders of a case's runs, the one last written to first."""
    ledgers = (repository.root / "runs" / case).glob(f"*/{LEDGER}")
    return [path.parent for path in sorted(ledgers, key=lambda path: -path.stat().st_mtime)]


def is_finished(folder: Path) -> bool:
    """Whether the run's last climb came to its own end: a budget, the patience, no more ideas."""
    last = _last_entry(folder / LEDGER)
    return isinstance(last, FinishedEntry) and not last.interrupted


def owner(folder: Path) -> str:
    """Who says to be climbing there, in words."""
    try:
        facts = json.loads((folder / "lock").read_text())
        since = datetime.fromtimestamp(facts["since"]).isoformat(sep=" ", timespec="seconds")
        return f"process {facts['pid']} on {facts['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _newest_unfinished(repository: Repository, case: str) -> str | None:
    return next((folder.name for folder in list_runs(repository, case) if not is_finished(folder)), None)


def _today(repository: Repository, case: str, clock: Clock) -> str:
    """Like `nov21`, or `nov21-2` where that day has a run or a branch already."""
    date = datetime.fromtimestamp(clock.now())
    day = f"{_MONTHS[date.month - 1]}{date.day:02d}"
    taken = {folder.name for folder in list_runs(repository, case)}
    taken |= {ref.rsplit("/", 1)[1] for ref in repository.refs(f"refs/heads/hillclimb/{case}/")}
    names = (day if count == 1 else f"{day}-{count}" for count in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _last_entry(path: Path) -> Entry | None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines[1:] if len(lines) > 2 else lines):
        try:
            entry = ENTRY.validate_json(line)
        except ValidationError:
            continue
        if not isinstance(entry, NotifiedEntry):  # what became of a post says nothing about the climb
            return entry
    return None


def _acquire_lock(path: Path, disk: Disk, clock: Clock) -> int:
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": clock.now()}
    lock = disk.lock(path, json.dumps(facts).encode())
    if lock is None:
        raise UsageError(
            f"{path.parent} is being climbed by {owner(path.parent)}; "
            "wait for it, stop it (it can be resumed), or choose another --tag"
        )
    return lock


def _write_gitignore(repository: Repository, folder: Path, disk: Disk) -> None:
    """Keep the run out of the user's `git status` where their ignore rules do not."""
    marker = folder / ".gitignore"
    if not marker.exists() and not repository.ignores(folder / LEDGER):
        disk.replace(marker, b"*\n")
