"""Commands that read what a run left: history, show, watch, report, rebuild, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hillclimb.agent.commands.options import INTERRUPTED, CaseArgument, JsonOption, TagOption, locate
from hillclimb.harness.errors import UsageError


def history(case: CaseArgument, tag: TagOption = None, json: JsonOption = False) -> None:
    """List the wins of a run, by the trailers of every commit that HEAD or a ref reaches: works on any clone.

    Example: `hillclimb history demo/cpu_matmul --tag first`
    """
    from hillclimb.agent.record.recorded_runs import is_shallow
    from hillclimb.agent.review.history import pick_run, show_json, show_table

    repository, name = locate(case)
    run, is_part = pick_run(repository, name, tag), is_shallow(repository)
    print(show_json(run, is_part) if json else show_table(run, is_part))


def show(
    case: CaseArgument,
    candidate: Annotated[str, typer.Argument(metavar="N", help="A candidate's number, or `baseline`.")],
    tag: TagOption = None,
    samples: Annotated[bool, typer.Option("--samples", help="Every block of the raw measurements.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, on a terminal either.")] = False,
    json: JsonOption = False,
) -> None:
    """Show one candidate of a run: proposal, verdict, figures, samples and its diff against the incumbent it met.

    Example: `hillclimb show demo/cpu_matmul 12 --tag first`
    """
    from hillclimb.agent.review.candidate_view import describe_baseline, describe_candidate
    from hillclimb.agent.review.rebuilding import find_run
    from hillclimb.agent.review.show import StoredRun, show_baseline, show_candidate
    from hillclimb.agent.screen.escaping import print_lines

    repository, name = locate(case)
    shelf = StoredRun.open(repository, find_run(repository, name, tag))
    if candidate == "baseline":
        baseline = show_baseline(shelf, blocks=samples)
        text, lines = baseline.model_dump_json(), describe_baseline(baseline)
    elif candidate.isascii() and candidate.isdecimal():
        shown = show_candidate(shelf, int(candidate), blocks=samples)
        text, lines = shown.model_dump_json(), describe_candidate(shown)
    else:
        raise UsageError(f"{candidate!r} is no candidate; give its number, or 'baseline'")
    if json:
        print(text)
    else:
        print_lines(lines, colour=not no_color)


def watch(
    case: Annotated[
        str | None, typer.Argument(metavar="[CASE]", help="A case, or a run's tag alone.")
    ] = None,
    tag: Annotated[
        str | None, typer.Argument(metavar="[TAG]", help="The run; without it, the newest.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Say how it stands, and leave.")] = False,
    json: JsonOption = False,
) -> None:
    """Follow a run from another terminal until it is finished or Ctrl-C; reads its ledger and nothing else.

    Without a CASE, the run that was last written to in this checkout.

    Example: `hillclimb watch demo/cpu_matmul first`
    """
    from hillclimb.agent.review.watching import find_folder, follow_run
    from hillclimb.agent.screen.screen import choose_screen

    root, name, wanted = _find_watched(case, tag)
    folder = find_folder(root, name, wanted)
    try:
        with choose_screen(json=json, quiet=False) as screen:
            follow_run(folder, screen.show, once=once)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _find_watched(case: str | None, tag: str | None) -> tuple[Path, str | None, str | None]:
    """Root, case and tag; a single word that names no case is taken for a tag."""
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.record.run import run_folder

    if case is None:
        return Repository.open(Path.cwd()).root, None, None
    try:
        repository, name = locate(case)
    except UsageError:
        if tag is not None or "/" in case:
            raise
        return Repository.open(Path.cwd()).root, None, case
    if tag is not None:
        run_folder(repository, name, tag)  # refuses what cannot be a tag
    return repository.root, name, tag


def report(
    case: CaseArgument,
    tag: TagOption = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to write it. Default: report.html in the run's folder.")
    ] = None,
) -> None:
    """Write the story of a run as one HTML page that needs no network: curve, candidates with diffs, phases, costs.

    A clone without the folder of the run has the wins alone, by their trailers, and writes the page where you are.

    Example: `hillclimb report demo/cpu_matmul --tag first`
    """
    from hillclimb.agent.review.reporting import write_report

    repository, name = locate(case)
    print(write_report(repository, name, tag, output))


def rebuild(case: CaseArgument, tag: TagOption = None) -> None:
    """Make results.tsv, progress.png and study.db of a run anew from its ledger.

    Example: `hillclimb rebuild demo/cpu_matmul --tag first`
    """
    from hillclimb.agent.review.rebuilding import rebuild_views

    repository, name = locate(case)
    for line in rebuild_views(repository, name, tag):
        print(line)


def runs(
    case: Annotated[str | None, typer.Argument(metavar="[CASE]", help="Only this case's.")] = None,
    json: JsonOption = False,
) -> None:
    """List the runs of this checkout and their states, the latest first.

    Example: `hillclimb runs demo/cpu_matmul`
    """
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.review.listing import list_states, show_states

    repository, name = (Repository.open(Path.cwd()), None) if case is None else locate(case)
    states = list_states(repository.root, name)
    if json:
        for state in states:
            print(state.model_dump_json())
    else:
        print(show_states(states))
