"""`hillclimb profile`."""

from __future__ import annotations

from typing import Annotated

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import (
    CaseArgument,
    JsonOption,
    TrustOption,
    show_progress,
)


def profile(
    case: CaseArgument,
    candidate: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH|REV", help="What to look at. Default: the working files."),
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Set a knob in its environment; may be repeated.")
    ] = None,
    json: JsonOption = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Show where a workspace's time goes, and how far it is from what the device can do. Decides nothing.

    Without a GPU, a case that is for one is not timed: masked lanes and loop trips are all that is shown.

    Example: `hillclimb profile demo/cpu_matmul --knob MM_THREADS=2`
    """
    from hillclimb.agent.evaluate.profiling import ProfileRequest, show
    from hillclimb.agent.evaluate.profiling import profile as profile_case
    from hillclimb.harness.case.case import find_case

    subject = ProfileRequest(find_case(case), candidate, tuple(knob or ()), trust_workspace)
    log = TimedLog(log_file)
    found = profile_case(subject, log.watching(show_progress(json)))
    log.show(found, show, json=json)
