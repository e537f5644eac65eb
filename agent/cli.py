"""The command line. Every command is thin: it reads what was typed, calls one function and shows what came back.

Imports stand inside the commands, so that `--help` and `history` start at once.
"""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import HillclimbError, MachineError, UsageError

if TYPE_CHECKING:
    from agent.evaluation import Evaluated
    from agent.repository import Repository
    from harness.judge.protocol import Progress

REJECTED, USAGE, MACHINE, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    name="hillclimb",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Climbs kernels: proposes changes, judges them in a sandbox, and keeps only proven wins, as commits on a
    branch of their own. Your checkout, index and current branch are never touched.

    A CASE is a folder with a case.yaml, or `<family>/<case>` below ./cases.

    Examples:

    - `hillclimb climb demo/cpu_matmul --budget-seconds 150`

    - `hillclimb history demo/cpu_matmul`

    - `hillclimb evaluate demo/cpu_matmul --knob MM_TILE_N=64`

    Exit status: 0 done or kept, 1 rejected, 2 wrong usage or a wrong file, 3 the machine failed, 130 interrupted.""",
)

CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="A case's folder, or `<family>/<case>`.")]
TagOption = Annotated[str | None, typer.Option(help="The run; without it, the newest one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-workspace",
        help="Run your own code where no sandbox can be raised. Every record says so; knob sweeps only.",
    ),
]


def main() -> None:
    """Entry point: runs a command; an error of ours is one line on stderr and an exit status, never a traceback."""
    try:
        _expect_git()
        app()
    except MachineError as error:
        _fail(str(error), MACHINE)
    except HillclimbError as error:
        _fail(str(error), USAGE)
    except OSError as error:
        _fail(f"{error}; the machine refused it, so mend that and run the command again", MACHINE)


def _fail(message: str, status: int) -> None:
    print(f"hillclimb: {message}", file=sys.stderr)
    sys.exit(status)


def _expect_git() -> None:
    if shutil.which("git") is None:
        raise MachineError("git is not on PATH; install it")


def _finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Raises UsageError for `inf`, which a smallest value alone lets pass."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option.opts[0]} {value}: give a finite number, such as 3600")
    return value


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hillclimb {version('hillclimb')}")
        raise typer.Exit


@app.callback()
def hillclimb(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and leave.")
    ] = False,
) -> None:
    """See the help of `app`."""


@app.command()
def climb(
    case: CaseArgument,
    tag: Annotated[
        str | None,
        typer.Option(
            help="Names the run. Default: $HILLCLIMB_RUN_TAG, the newest unfinished run, or today's date."
        ),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=0.001, callback=_finite, help="Wall time over all sessions. Default: case.yaml."),
    ] = None,
    budget_candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidates to judge. Default: case.yaml.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Candidates in a row without a win. Default: case.yaml.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="What the sweep's choices follow from. Default: 0.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(min=1e-12, max=0.5, help="Chance of even one false win in the run. Default: case.yaml."),
    ] = None,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print wins, trouble and the end only.")] = False,
    trust_workspace: TrustOption = False,
) -> None:
    """Climb a case until a budget, the patience or Ctrl-C ends it; the same command goes on with it later.

    Wins become commits on branch `hillclimb/<family>/<case>/<tag>`; everything else lies in
    `runs/<family>/<case>/<tag>/`.

    Example: `hillclimb climb demo/cpu_matmul --tag first --budget-seconds 150`
    """
    from agent.budget import Budgets
    from agent.controller import climb as climb_case
    from agent.proposers.sweep import Sweep
    from agent.rebuilding import mirror_study
    from agent.request import Request, Tools
    from agent.screen import choose_screen
    from harness.case.case import find_case
    from harness.judge.pool import LocalJudge

    if json and quiet:
        raise UsageError("--json and --quiet: they exclude each other; drop one")
    budgets = Budgets(seconds=budget_seconds, candidates=budget_candidates, patience=patience)
    request = Request(case=find_case(case), tag=tag, seed=seed, alpha=alpha, budgets=budgets)
    with choose_screen(json=json, quiet=quiet) as screen:
        finished = climb_case(
            request,
            lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
            lambda background: Sweep(background.case.knobs, background.seed),
            Tools(emit=screen.show, mirror=mirror_study),
        )
    if finished.interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command()
def check(case: CaseArgument, json: JsonOption = False, trust_workspace: TrustOption = False) -> None:
    """Validate a case's files and bring its baseline, the working files, before the gate.

    Example: `hillclimb check demo/cpu_matmul`
    """
    from agent.evaluation import check as check_case
    from harness.case.case import find_case

    found = check_case(find_case(case), _show_progress(json), trust_workspace=trust_workspace)
    gate = found.gate
    if json:
        print(found.model_dump_json())
    elif gate.passed:
        worst = f"largest error {gate.worst:.3f} of the budget, at {gate.worst_at}"
        print(
            f"{found.case}: sound; the gate passed {gate.runs} checks ({worst}); sandbox: {found.provenance.sandbox}"
        )
    else:
        print(f"{found.case}: the gate rejects the baseline: {gate.reason}: {gate.detail}")
    if not gate.passed:
        raise typer.Exit(REJECTED)


@app.command()
def evaluate(
    case: CaseArgument,
    candidate: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH|REV", help="What to judge. Default: the working files."),
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Set a knob in its environment; may be repeated.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="REV|PATH", help="What it must beat. Default: HEAD.")
    ] = None,
    json: JsonOption = False,
    trust_workspace: TrustOption = False,
) -> None:
    """Judge one version of a workspace against another: gate, screening, decision. Exit status 0 kept, 1 rejected.

    Example: `hillclimb evaluate demo/cpu_matmul --from hillclimb/demo/cpu_matmul/first --against main`
    """
    from agent.evaluation import Question
    from agent.evaluation import evaluate as evaluate_case
    from harness.case.case import find_case

    question = Question(find_case(case), candidate, against, tuple(knob or ()), trust_workspace)
    found = evaluate_case(question, _show_progress(json))
    print(found.model_dump_json() if json else _describe(found))
    if not found.kept:
        raise typer.Exit(REJECTED)


@app.command("new-case")
def new_case(
    model_slug: Annotated[str, typer.Option(help="Family folder: a-z, 0-9, _.")],
    case_slug: Annotated[str, typer.Option(help="Case folder: a-z, 0-9, _.")],
    model_name: Annotated[str, typer.Option(help="The model or operator, in words.")] = "",
    model_path: Annotated[str, typer.Option(help="Where its files lie, if it is served.")] = "",
    hardware: Annotated[str, typer.Option(help="The target, in words.")] = "",
) -> None:
    """Stamp a new case from cases/_template; it passes `check` as it is.

    Example: `hillclimb new-case --model-slug demo --case-slug rowsum --model-name "Row sum" --hardware "any CPU"`
    """
    from agent.stamp import stamp

    here = Path.cwd()
    root = next((p for p in (here, *here.parents) if (p / "cases" / "_template").is_dir()), here)
    folder = stamp(root, model_slug, case_slug, model_name, model_path, hardware)
    print(f"{folder}\nnext: edit contract.py and workspace/, then 'hillclimb check {model_slug}/{case_slug}'")


@app.command()
def history(case: CaseArgument, tag: TagOption = None, json: JsonOption = False) -> None:
    """List the wins of a run, read from its branch alone: works on any clone that has the branch.

    Example: `hillclimb history demo/cpu_matmul --tag first`
    """
    from agent.branch import read_wins
    from agent.history import pick_branch, show_json, show_table

    repository, name = _locate(case)
    branch = pick_branch(repository, name, tag)
    wins = read_wins(repository, branch)
    print(show_json(branch, wins) if json else show_table(branch, wins))


@app.command()
def rebuild(case: CaseArgument, tag: TagOption = None) -> None:
    """Make results.tsv, progress.png and study.db of a run anew from its ledger.

    Example: `hillclimb rebuild demo/cpu_matmul --tag first`
    """
    from agent.rebuilding import rebuild_views

    repository, name = _locate(case)
    for line in rebuild_views(repository, name, tag):
        print(line)


@app.command()
def runs(
    case: Annotated[str | None, typer.Argument(metavar="[CASE]", help="Only this case's.")] = None,
    json: JsonOption = False,
) -> None:
    """List the runs of this checkout and their states, the latest first.

    Example: `hillclimb runs demo/cpu_matmul`
    """
    from agent.listing import list_states, show_states
    from agent.repository import Repository

    repository, name = (Repository.open(Path.cwd()), None) if case is None else _locate(case)
    states = list_states(repository.root, name)
    if json:
        for state in states:
            print(state.model_dump_json())
    else:
        print(show_states(states))


def _locate(given: str) -> tuple[Repository, str]:
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


def _show_progress(json: bool) -> Watcher:
    return Watcher(sys.stderr.isatty() and not json)


class Watcher:
    """One line on a terminal's stderr that says what the judge is at; nothing elsewhere."""

    def __init__(self, visible: bool) -> None:
        self._visible = visible

    def __call__(self, progress: Progress) -> None:
        if self._visible:
            of = f" {progress.done}/{progress.of}" if progress.of else ""
            print(f"\r\033[K{progress.stage}{of}\r", end="", file=sys.stderr, flush=True)


def _describe(found: Evaluated) -> str:
    versions = f"{found.candidate} against {found.against}"
    setting = f" with {', '.join(f'{k}={v}' for k, v in found.knobs.items())}" if found.knobs else ""
    if not found.kept:
        return f"rejected: {found.reason}: {found.detail}\n{found.case}: {versions}{setting}"
    speedup = found.confirmation.speedup if found.confirmation else None
    return f"kept: {speedup} faster\n{found.case}: {versions}{setting}"
