"""The command line. Every command is thin: it reads what was typed, calls one function and shows what came back.

Imports stand inside the commands, so that `--help` and `history` start at once.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import HillclimbError, MachineError, UsageError

if TYPE_CHECKING:
    from agent.evaluation import Evaluated, Question
    from agent.events import Emit, Event
    from agent.notify.notifier import Notifier
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
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of all model calls. Default: case.yaml.")
    ] = None,
    budget_cost: Annotated[
        float | None,
        typer.Option(min=1e-6, callback=_finite, help="US dollars of all model calls. Default: case.yaml."),
    ] = None,
    proposer: Annotated[
        str,
        typer.Option(
            metavar="auto|sweep|llm|mixed",
            help="Who has the ideas. auto: mixed where a key and a model are configured, else sweep.",
        ),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option(help="The language model. Default: case.yaml, then $HILLCLIMB_MODEL.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server. Default: $OPENAI_BASE_URL.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="Of the model. Default: case.yaml, then its own.")
    ] = None,
    reasoning_effort: Annotated[
        str | None, typer.Option(help="Of the model: low, medium, high. Default: case.yaml, then its own.")
    ] = None,
    no_webhook: WebhookOption = False,
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
    `runs/<family>/<case>/<tag>/`. Keys, the model's endpoint and a Discord webhook are read from the environment and
    from `.env` in the repository's root; `.env.example` shows them all.

    Examples:

    - `hillclimb climb demo/cpu_matmul --tag first --budget-seconds 150`

    - `hillclimb climb demo/cpu_matmul --proposer mixed --model gpt-5 --budget-tokens 500000`
    """
    from agent.budget import Budgets
    from agent.config import read_config
    from agent.controller import climb as climb_case
    from agent.proposers.choice import Kind, Wishes, choose
    from agent.rebuilding import mirror_study
    from agent.repository import Repository
    from agent.request import Request, Tools
    from agent.screen import choose_screen
    from harness.case.case import Case, find_case
    from harness.judge.pool import LocalJudge

    if json and quiet:
        raise UsageError("--json and --quiet: they exclude each other; drop one")
    if proposer not in tuple(Kind):
        raise UsageError(f"--proposer {proposer}: there is no such proposer; choose among {', '.join(Kind)}")
    budgets = Budgets(budget_seconds, budget_candidates, patience, budget_tokens, budget_cost)
    request = Request(case=find_case(case), tag=tag, seed=seed, alpha=alpha, budgets=budgets)
    wishes = Wishes(
        Kind(proposer), model, base_url, temperature, reasoning_effort, budget_cost, budget_tokens
    )
    config = read_config(Repository.open(request.case).root, os.environ)
    for notice in (*config.notices, *_why_exposed(Repository.open(request.case))):
        print(f"hillclimb: {notice}", file=sys.stderr)
    with ExitStack() as at_end, choose_screen(json=json, quiet=quiet) as screen:
        notifier = _notifier(request.case, no_webhook)
        at_end.callback(notifier.close)
        at_end.push(_telling_errors(notifier))
        finished = climb_case(
            request,
            lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
            choose(wishes, config, Case(request.case).settings, at_end.callback),
            Tools(
                emit=_both(screen.show, notifier.tell),
                mirror=mirror_study,
                notifier=notifier,
            ),
        )
    _write_page(Path(finished.folder), quiet=json)
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
    commit: Annotated[
        bool,
        typer.Option(
            "--commit",
            help="Make it a candidate of a run: judged against its incumbent, a win on its branch.",
        ),
    ] = False,
    tag: Annotated[
        str | None, typer.Option(help="The run for --commit. Default: as for climb; it is begun if need be.")
    ] = None,
    idea: Annotated[str | None, typer.Option(help="What is tried, in a line, for --commit.")] = None,
    family: Annotated[
        str | None, typer.Option(help="The kind of change it is one of, such as tiling, for --commit.")
    ] = None,
    author: Annotated[
        str | None, typer.Option(metavar="human|agent", help="Who made it, for --commit. Default: human.")
    ] = None,
    no_webhook: WebhookOption = False,
    json: JsonOption = False,
    trust_workspace: TrustOption = False,
) -> None:
    """Judge one version of a workspace against another: gate, screening, decision. Exit status 0 kept, 1 rejected.

    Nothing is written unless `--commit` is given.

    Examples:

    - `hillclimb evaluate demo/cpu_matmul --from hillclimb/demo/cpu_matmul/first --against main`

    - `hillclimb evaluate demo/cpu_matmul --from ../try --commit --tag first --idea "B packed" --author agent`
    """
    from agent.evaluation import Question
    from agent.evaluation import evaluate as evaluate_case
    from harness.case.case import find_case

    question = Question(find_case(case), candidate, against, tuple(knob or ()), trust_workspace)
    notifier = _notifier(question.case, no_webhook, wins_only=True)
    if commit:
        found = _land(question, tag, author, idea, family, json, notifier)
    else:
        _refuse_without_commit(tag=tag, idea=idea, family=family, author=author)
        found = evaluate_case(question, _show_progress(json)).posted(notifier.webhook(0, kept=False))
    print(found.model_dump_json() if json else _describe(found))
    if not found.kept:
        raise typer.Exit(REJECTED)


@app.command()
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
    trust_workspace: TrustOption = False,
) -> None:
    """Show where a workspace's time goes, and how far it is from what the device can do. Decides nothing.

    Example: `hillclimb profile demo/cpu_matmul --knob MM_THREADS=2`
    """
    from agent.profiling import Subject, show
    from agent.profiling import profile as profile_case
    from harness.case.case import find_case

    subject = Subject(find_case(case), candidate, tuple(knob or ()), trust_workspace)
    found = profile_case(subject, _show_progress(json))
    print(found.model_dump_json() if json else show(found))


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
    from agent.review.history import pick_branch, show_json, show_table

    repository, name = _locate(case)
    branch = pick_branch(repository, name, tag)
    wins = read_wins(repository, branch)
    print(show_json(branch, wins) if json else show_table(branch, wins))


@app.command()
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
    from agent.lines import print_lines
    from agent.rebuilding import find_run
    from agent.review.showing import Shelf, show_baseline, show_candidate
    from agent.review.shown import describe_baseline, describe_candidate

    repository, name = _locate(case)
    shelf = Shelf.open(repository, find_run(repository, name, tag))
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


@app.command()
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
    trust_workspace: TrustOption = False,
) -> None:
    """Judge a commit anew, here and now, by the rules in that commit. Exit status 0 confirmed, 1 not.

    Prints what the commit claims beside what is measured now.

    Examples:

    - `hillclimb review hillclimb/demo/cpu_matmul/first~1`

    - `hillclimb review hillclimb/demo/cpu_matmul/first --first-last`
    """
    from agent.repository import Repository
    from agent.review.reviewed import describe
    from agent.review.reviewing import BASELINE, PARENT, duel, find_subject, measure
    from harness.judge.pool import LocalJudge

    if first_last and against not in (PARENT, BASELINE):
        raise UsageError(f"--first-last and --against {against}: the first commit is the baseline; drop one")
    repository, name = (Repository.open(Path.cwd()), None) if case is None else _locate(case)
    subject = find_subject(repository, revision, BASELINE if first_last else against, name)
    found = (measure if first_last else duel)(
        subject,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
        _show_progress(json),
    )
    print(found.model_dump_json() if json else describe(found))
    if found.finding != "confirmed":
        raise typer.Exit(REJECTED)


@app.command()
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
    from agent.review.watching import find_folder, follow
    from agent.screen import choose_screen

    root, name, wanted = _find_watched(case, tag)
    folder = find_folder(root, name, wanted)
    try:
        with choose_screen(json=json, quiet=False) as screen:
            follow(folder, screen.show, once=once)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _find_watched(case: str | None, tag: str | None) -> tuple[Path, str | None, str | None]:
    """Root, case and tag; a single word that names no case is taken for a tag."""
    from agent.repository import Repository
    from agent.run import run_folder

    if case is None:
        return Repository.open(Path.cwd()).root, None, None
    try:
        repository, name = _locate(case)
    except UsageError:
        if tag is not None or "/" in case:
            raise
        return Repository.open(Path.cwd()).root, None, case
    if tag is not None:
        run_folder(repository, name, tag)  # refuses what cannot be a tag
    return repository.root, name, tag


@app.command()
def report(
    case: CaseArgument,
    tag: TagOption = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to write it. Default: report.html in the run's folder.")
    ] = None,
) -> None:
    """Write the story of a run as one HTML page that needs no network: curve, candidates with diffs, phases, costs.

    Example: `hillclimb report demo/cpu_matmul --tag first`
    """
    from agent.review.reporting import write_report

    repository, name = _locate(case)
    print(write_report(repository, name, tag, output))


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
    from agent.repository import Repository
    from agent.review.listing import list_states, show_states

    repository, name = (Repository.open(Path.cwd()), None) if case is None else _locate(case)
    states = list_states(repository.root, name)
    if json:
        for state in states:
            print(state.model_dump_json())
    else:
        print(show_states(states))


def _write_page(folder: Path, *, quiet: bool) -> None:
    """report.html of the run that has just ended; what stands in the way ends nothing."""
    from agent.repository import Repository
    from agent.review.reporting import write_report

    try:
        page = write_report(Repository.open(folder), "/".join(folder.parts[-3:-1]), folder.name, None)
    except HillclimbError as error:
        print(f"hillclimb: no report: {error}", file=sys.stderr)
        return
    if not quiet:
        print(f"report: {page}")


def _why_exposed(repository: Repository) -> tuple[str, ...]:
    """A notice where the next `git add` of a user would take their keys along."""
    file = repository.root / ".env"
    if not file.exists() or repository.ignores(file):
        return ()
    return (f"{file}: git does not ignore it, and it may hold keys; put the line '/.env' into .gitignore",)


def _telling_errors(notifier: Notifier) -> Callable[..., None]:
    """An exit callback: an error that ends the climb is told, too."""

    def tell(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from agent.events import TroubleEvent

        if isinstance(error, Exception) and not isinstance(error, typer.Exit | UsageError):
            notifier.tell(TroubleEvent(time=time.time(), message=f"the climb ended with an error: {error}"))

    return tell


def _both(first: Emit, second: Emit) -> Emit:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit


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


def _notifier(case: Path, off: bool, *, wins_only: bool = False) -> Notifier:
    """Whoever is told about this case's wins; what is odd about the configuration is said."""
    from agent.config import read_config
    from agent.notify.notifier import choose_notifier
    from agent.repository import Repository

    config = read_config(Repository.open(case).root, os.environ)
    return choose_notifier(config.webhook_url, switched_off=off, secrets=config.secrets, wins_only=wins_only)


def _land(
    question: Question,
    tag: str | None,
    author: str | None,
    idea: str | None,
    family: str | None,
    json: bool,
    notifier: Notifier,
) -> Evaluated:
    """Judge it as a candidate of a run."""
    from agent.landing import Landing, Listener, land
    from agent.request import Tools
    from harness.judge.pool import LocalJudge

    if author not in (None, "human", "agent"):
        raise UsageError(f"--author {author}: choose human or agent")
    landing = Landing(question, tag, "agent" if author == "agent" else "human", idea or "", family or "")
    listener = Listener(_show_progress(json), lambda message: print(f"hillclimb: {message}", file=sys.stderr))
    trust = question.trust_workspace
    found = land(
        landing,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust),
        Tools(emit=_both(listener.show, notifier.tell), notifier=notifier),
    )
    if found is None:
        print("hillclimb: interrupted; the same command, or a climb, goes on with it", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    return found


def _refuse_without_commit(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name} {value}: is for --commit; add that, or drop --{name}")


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
    where = f"\n{_place(found)}" if found.run else ""
    if not found.kept:
        return f"rejected: {found.reason}: {found.detail}\n{found.case}: {versions}{setting}{where}"
    speedup = found.confirmation.speedup if found.confirmation else None
    return f"kept: {speedup} faster\n{found.case}: {versions}{setting}{where}"


def _place(found: Evaluated) -> str:
    """Where a candidate that was brought by hand ended up."""
    commit = f"commit {found.commit}, {found.ref}" if found.commit else "no commit"
    return f"candidate {found.n} of run {found.run}: {commit}"
