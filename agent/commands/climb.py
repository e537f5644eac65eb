"""`hillclimb climb`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import (
    INTERRUPTED,
    CaseArgument,
    JsonOption,
    TrustOption,
    WebhookOption,
    as_text,
    configured,
    duration,
    emit_to_both,
    factor,
    finite,
    make_notifier,
)
from hillclimb.harness.errors import HillclimbError, UsageError

if TYPE_CHECKING:
    from hillclimb.agent.climb.request import ClimbRequest
    from hillclimb.agent.machine.config import Config
    from hillclimb.agent.notify.notifier import Notifier
    from hillclimb.agent.proposers.choose import ProposerKind, ProposerOptions
    from hillclimb.agent.screen.events import Event, FinishedEvent
    from hillclimb.harness.case.settings import Settings


ClimbTag = Annotated[
    str | None,
    typer.Option(
        help="Names the run. Default: $HILLCLIMB_RUN_TAG, the newest unfinished run, or today's date."
    ),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="DURATION",
        parser=as_text,
        callback=duration,
        help="Wall time over all sessions: 8h, 90m, 45s or seconds. Default: case.yaml.",
    ),
]
BudgetCandidates = Annotated[
    int | None,
    typer.Option(min=0, help="Candidates to judge; 0 measures the baseline only. Default: case.yaml."),
]
Patience = Annotated[
    int | None, typer.Option(min=1, help="Candidates in a row without a win. Default: case.yaml.")
]
BudgetTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens of all model calls. Default: case.yaml.")
]
BudgetCost = Annotated[
    float | None,
    typer.Option(min=1e-6, callback=finite, help="US dollars of all model calls. Default: case.yaml."),
]
Until = Annotated[
    float | None,
    typer.Option(
        metavar="SPEEDUP",
        parser=as_text,
        callback=factor,
        help="End once the run is proven to be so many times as fast as its baseline, such as 2.0x.",
    ),
]
ProposerName = Annotated[
    str,
    typer.Option(
        metavar="auto|sweep|llm|mixed",
        help="Who has the ideas. auto: mixed where a language model is configured, else sweep.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(help="The language model that is asked. Default: case.yaml, then $HILLCLIMB_MODEL."),
]
BaseUrl = Annotated[str | None, typer.Option(help="An OpenAI-compatible server. Default: $OPENAI_BASE_URL.")]
Temperature = Annotated[
    float | None, typer.Option(min=0, max=2, help="Of the model. Default: case.yaml, then its own.")
]
ReasoningEffort = Annotated[
    str | None, typer.Option(help="Of the model: low, medium, high. Default: case.yaml, then its own.")
]
RequestExtra = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=JSON",
        help="A parameter of every request to the model, such as top_k=20; null leaves one out. May be repeated.",
    ),
]
RequestHeader = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header of every request to the model. May be repeated."),
]
Seed = Annotated[int | None, typer.Option(help="What the sweep's choices follow from. Default: 0.")]
Alpha = Annotated[
    float | None,
    typer.Option(min=1e-12, max=0.5, help="Chance of even one false win in the run. Default: case.yaml."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print wins, trouble and the end only.")]


def climb(
    case: CaseArgument,
    tag: ClimbTag = None,
    budget_seconds: BudgetSeconds = None,
    budget_candidates: BudgetCandidates = None,
    patience: Patience = None,
    budget_tokens: BudgetTokens = None,
    budget_cost: BudgetCost = None,
    until: Until = None,
    proposer: ProposerName = "auto",
    model: ModelName = None,
    base_url: BaseUrl = None,
    temperature: Temperature = None,
    reasoning_effort: ReasoningEffort = None,
    request_extra: RequestExtra = None,
    request_header: RequestHeader = None,
    no_webhook: WebhookOption = False,
    seed: Seed = None,
    alpha: Alpha = None,
    json: JsonOption = False,
    quiet: Quiet = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Climb a case until a budget, a target, the patience or Ctrl-C ends it; the same command goes on later.

    Wins become commits on branch `hillclimb/<family>/<case>/<tag>`; everything else lies in
    `runs/<family>/<case>/<tag>/`. Keys, the model's endpoint and a Discord webhook are read from the environment and
    from `.env` in the repository's root; `.env.example` shows them all.

    Examples:

    - `hillclimb climb demo/cpu_matmul --tag first --budget-seconds 8h --until 2.0x`

    - `hillclimb climb demo/cpu_matmul --proposer mixed --model gpt-5 --budget-tokens 500000`
    """
    from hillclimb.agent.climb.budget import BudgetOverrides
    from hillclimb.agent.climb.request import ClimbRequest
    from hillclimb.agent.proposers.choose import ProposerOptions, describe
    from hillclimb.harness.case.case import Case, find_case

    if json and quiet:
        raise UsageError("--json and --quiet: they exclude each other; drop one")
    budgets = BudgetOverrides(budget_seconds, budget_candidates, patience, budget_tokens, budget_cost, until)
    asked = (model, base_url, temperature, reasoning_effort, budget_cost, budget_tokens)
    wishes = ProposerOptions(_kind(proposer), *asked, extra=request_extra or (), headers=request_header or ())
    folder = find_case(case)
    config, rules = configured(folder), Case(folder).settings
    request = ClimbRequest(folder, tag, seed, alpha, budgets, describe(wishes, config, rules.llm))
    output = Output(json=json, quiet=quiet, no_webhook=no_webhook, log=TimedLog(log_file))
    finished = _climb(request, wishes, config, rules, output, trust_workspace=trust_workspace)
    if finished.begun:
        _write_page(Path(finished.folder), quiet=json)
    if finished.interrupted:
        raise typer.Exit(INTERRUPTED)


def _kind(proposer: str) -> ProposerKind:
    from hillclimb.agent.proposers.choose import ProposerKind

    if proposer not in tuple(ProposerKind):
        raise UsageError(
            f"--proposer {proposer}: there is no such proposer; choose among {', '.join(ProposerKind)}"
        )
    return ProposerKind(proposer)


@dataclass(frozen=True)
class Output:
    """Who is told of the climb, and how."""

    json: bool
    quiet: bool
    no_webhook: bool
    log: TimedLog


def _climb(
    request: ClimbRequest,
    wishes: ProposerOptions,
    config: Config,
    rules: Settings,
    output: Output,
    *,
    trust_workspace: bool,
) -> FinishedEvent:
    """Climb with a judge on this machine, told on the screen and to the webhook."""
    from hillclimb.agent.climb.climb import climb as climb_case
    from hillclimb.agent.climb.request import Tools
    from hillclimb.agent.proposers.choose import choose_proposer
    from hillclimb.agent.review.rebuilding import mirror_study
    from hillclimb.agent.screen.screen import LineScreen, choose_screen
    from hillclimb.harness.judge.pool import LocalJudge

    with ExitStack() as at_end, choose_screen(json=output.json, quiet=output.quiet) as screen:
        notifier = make_notifier(config, output.no_webhook)
        at_end.callback(notifier.close)
        begun = StartFlag()
        log = LineScreen(output.log, output.log)
        at_end.push(_error_reporter(notifier, begun))
        return climb_case(
            request,
            lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
            choose_proposer(wishes, config, rules, at_end.callback),
            Tools(
                emit=emit_to_both(
                    emit_to_both(begun.set_on_event, log.show), emit_to_both(screen.show, notifier.notify)
                ),
                mirror=mirror_study,
                notifier=notifier,
            ),
        )


def _write_page(folder: Path, *, quiet: bool) -> None:
    """report.html of the run that has just ended; what stands in the way ends nothing."""
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.review.reporting import write_report

    try:
        page = write_report(Repository.open(folder), "/".join(folder.parts[-3:-1]), folder.name, None)
    except HillclimbError as error:
        print(f"hillclimb: no report: {error}", file=sys.stderr)
        return
    if not quiet:
        print(f"report: {page}")


class StartFlag:
    """Whether the climb has told of anything yet."""

    def __init__(self) -> None:
        self.is_set = False

    def set_on_event(self, event: Event) -> None:
        self.is_set = True


def _error_reporter(notifier: Notifier, begun: StartFlag) -> Callable[..., None]:
    """An exit callback: an error that ends the climb is told, too; a wrong use before it began is the caller's."""

    def tell(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from hillclimb.agent.screen.events import TroubleEvent

        if isinstance(error, UsageError) and not begun.is_set:
            return
        if isinstance(error, Exception) and not isinstance(error, typer.Exit):
            notifier.notify(TroubleEvent(time=time.time(), message=f"the climb ended with an error: {error}"))

    return tell
