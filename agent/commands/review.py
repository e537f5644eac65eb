"""`hillclimb review`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import (
    REJECTED,
    JsonOption,
    TrustOption,
    locate,
    show_progress,
)
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    pass


def review(
    revision: Annotated[str, typer.Argument(metavar="REV", help="A commit of a run, or a run's branch.")],
    against: Annotated[
        str, typer.Option(metavar="parent|baseline|REV", help="What it is measured against.")
    ] = "parent",
    case: Annotated[
        str | None, typer.Option(metavar="CASE", help="Its case; without it, the one its trailers name.")
    ] = None,
    first_last: Annotated[
        bool,
        typer.Option("--first-last", help="Measure the run's first commit against REV, without a decision."),
    ] = False,
    json: JsonOption = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Judge a commit anew, here and now, by the rules in that commit. Exit status 0 confirmed, 1 not.

    Prints what the commit claims beside what is measured now.

    Examples:

    - `hillclimb review hillclimb/demo/cpu_matmul/first~1`

    - `hillclimb review hillclimb/demo/cpu_matmul/first --first-last`
    """
    from hillclimb.agent.evaluate.review import BASELINE, PARENT, duel, find_subject, measure
    from hillclimb.agent.evaluate.review_result import describe
    from hillclimb.agent.git.repository import Repository
    from hillclimb.harness.judge.pool import LocalJudge

    if first_last and against not in (PARENT, BASELINE):
        raise UsageError(f"--first-last and --against {against}: the first commit is the baseline; drop one")
    repository, name = (Repository.open(Path.cwd(), for_reading=True), None) if case is None else locate(case)
    subject = find_subject(repository, revision, BASELINE if first_last else against, name)
    log = TimedLog(log_file)
    found = (measure if first_last else duel)(
        subject,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
        log.watching(show_progress(json)),
    )
    log.show(found, describe, json=json)
    if found.finding != "confirmed":
        raise typer.Exit(REJECTED)
