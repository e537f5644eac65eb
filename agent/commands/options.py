"""What several commands share: their options and exit statuses, and how they find a case, its run and its readers."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UsageError

if TYPE_CHECKING:
    from agent.config import Config
    from agent.events import Emit, Event
    from agent.notify.notifier import Notifier
    from agent.repository import Repository
    from harness.judge.protocol import Progress

REJECTED, USAGE, MACHINE, INTERRUPTED = 1, 2, 3, 130

CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="A case's folder, or `<family>/<case>`.")]
TagOption = Annotated[str | None, typer.Option(help="The run; without it, the newest one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
WebhookOption = Annotated[
    bool, typer.Option("--no-webhook", help="Post nothing to Discord, whatever is configured.")
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-workspace",
        help="Run your own code where no sandbox can be raised. Every record says so; knob sweeps only.",
    ),
]


def finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Raises UsageError for `inf`, which a smallest value alone lets pass."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option.opts[0]} {value}: give a finite number, such as 3600")
    return value


def locate(given: str) -> tuple[Repository, str]:
    """The repository and `<family>/<case>`; the case's files need not be checked out for its history."""
    from agent.branch import find_branches
    from agent.repository import Repository
    from agent.snapshot import case_name
    from harness.case.case import find_case

    try:
        folder = find_case(given).resolve()
    except UsageError:
        repository = Repository.open(Path.cwd())
        name = given.strip("/").removeprefix("cases/")
        if name.count("/") == 1 and find_branches(repository, name):
            return repository, name
        raise
    repository = Repository.open(folder)
    return repository, case_name(repository, folder)


def both(first: Emit, second: Emit) -> Emit:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit


def configured(case: Path) -> Config:
    """What this machine says to the repository of a case; what is odd about it is told on stderr."""
    from agent.config import read_config
    from agent.repository import Repository

    repository = Repository.open(case)
    config = read_config(repository.root, os.environ)
    for notice in (*config.notices, *_why_exposed(repository)):
        print(f"hillclimb: {notice}", file=sys.stderr)
    return config


def _why_exposed(repository: Repository) -> tuple[str, ...]:
    """A notice where the next `git add` of a user would take their keys along."""
    file = repository.root / ".env"
    if not file.exists() or repository.ignores(file):
        return ()
    return (f"{file}: git does not ignore it, and it may hold keys; put the line '/.env' into .gitignore",)


def make_notifier(config: Config, off: bool, *, wins_only: bool = False) -> Notifier:
    """Whoever is told about wins."""
    from agent.notify.notifier import choose_notifier

    return choose_notifier(config.webhook_url, switched_off=off, secrets=config.secrets, wins_only=wins_only)


def show_progress(json: bool) -> Watcher:
    return Watcher(sys.stderr.isatty() and not json)


class Watcher:
    """One line on a terminal's stderr that says what the judge is at; nothing elsewhere."""

    def __init__(self, visible: bool) -> None:
        self._visible = visible

    def __call__(self, progress: Progress) -> None:
        if self._visible:
            of = f" {progress.done}/{progress.of}" if progress.of else ""
            print(f"\r\033[K{progress.stage}{of}\r", end="", file=sys.stderr, flush=True)
