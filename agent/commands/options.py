"""What several commands share: their options and exit statuses, and how they find a case, its run and its readers."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.completion import complete_case
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.machine.config import Config
    from hillclimb.agent.notify.notifier import Notifier
    from hillclimb.agent.screen.events import Emit, Event
    from hillclimb.harness.records import Progress, Watch

REJECTED, USAGE, MACHINE, INTERRUPTED = 1, 2, 3, 130

CaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="CASE", autocompletion=complete_case, help="A case's folder, or `<family>/<case>`."
    ),
]
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


def as_text(text: str) -> str:
    """What was typed, for a callback that reads it and can name the option."""
    return text


def duration(option: typer.CallbackParam, value: str | None) -> float | None:
    """Seconds. Raises UsageError for what is no duration."""
    from hillclimb.harness.case.durations import parse_duration

    if value is None:
        return None
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise UsageError(f"{option.opts[0]} {value}: {error}") from None


def factor(option: typer.CallbackParam, value: str | None) -> float | None:
    """A speedup such as 2.0x or 1.5. Raises UsageError for what is none, or not above 1."""
    if value is None:
        return None
    try:
        found = float(str(value).strip().lower().removesuffix("x"))
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 1):
        raise UsageError(f"{option.opts[0]} {value}: give a speedup above 1, such as 2.0x or 1.5")
    return found


def locate(given: str) -> tuple[Repository, str]:
    """The repository and `<family>/<case>`; the case's files need not be checked out for its history."""
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.git.snapshot import case_name
    from hillclimb.agent.record.recorded_runs import find_runs
    from hillclimb.harness.case.case import find_case

    try:
        folder = find_case(given).resolve()
    except UsageError:
        repository = Repository.open(Path.cwd(), for_reading=True)
        name = given.strip("/").removeprefix("cases/")
        if name.count("/") == 1 and find_runs(repository, name):
            return repository, name
        raise
    repository = Repository.open(folder)
    return repository, case_name(repository, folder)


def emit_to_both(first: Emit, second: Emit) -> Emit:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit


def configured(case: Path) -> Config:
    """What this machine says to the repository of a case; what is odd about it is told on stderr."""
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.machine.config import read_config

    repository = Repository.open(case)
    config = read_config(repository.root, os.environ)
    for notice in (*config.notices, *_exposed_key_notices(repository)):
        print(f"hillclimb: {notice}", file=sys.stderr)
    return config


def _exposed_key_notices(repository: Repository) -> tuple[str, ...]:
    """A notice where the next `git add` of a user would take their keys along."""
    file = repository.root / ".env"
    if not file.exists() or repository.ignores(file):
        return ()
    return (f"{file}: git does not ignore it, and it may hold keys; put the line '/.env' into .gitignore",)


def make_notifier(config: Config, off: bool, *, wins_only: bool = False) -> Notifier:
    """Whoever is told about wins."""
    from hillclimb.agent.notify.choose import choose_notifier

    return choose_notifier(config.webhook_url, switched_off=off, secrets=config.secrets, wins_only=wins_only)


def show_progress(json: bool) -> Watch:
    """Whoever tells a person on stderr what the judge is at; nobody where the output is for programs."""
    if json:
        return lambda progress: None
    return ProgressLine() if sys.stderr.isatty() else PhaseLines()


class ProgressLine:
    """One line in place that says what the judge is at."""

    def __call__(self, progress: Progress) -> None:
        of = f" {progress.done}/{progress.of}" if progress.of else ""
        print(f"\r\033[K{progress.stage}{of}\r", end="", file=sys.stderr, flush=True)


class PhaseLines:
    """A line for each phase as it begins, for a log."""

    def __init__(self) -> None:
        self._told = ""

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self._told:
            self._told = progress.stage
            print(f"phase: {progress.stage}", file=sys.stderr, flush=True)
