"""`hillclimb climb`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.options import (
    INTERRUPTED,
    CaseArgument,
    JsonOption,
    TrustOption,
    WebhookOption,
    both,
    configured,
    finite,
    make_notifier,
)
from harness.errors import HillclimbError, UsageError

if TYPE_CHECKING:
    from agent.events import Event
    from agent.notify.notifier import Notifier


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
        typer.Option(min=0.001, callback=finite, help="Wall time over all sessions. Default: case.yaml."),
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
        typer.Option(min=1e-6, callback=finite, help="US dollars of all model calls. Default: case.yaml."),
    ] = None,
    proposer: Annotated[
        str,
        typer.Option(
            metavar="auto|sweep|llm|mixed",
            help="Who has the ideas. auto: mixed where a language model is configured, else sweep.",
        ),
    ] = "auto",
    model: Annotated[
        str | None,
        typer.Option(help="The language model that is asked. Default: case.yaml, then $HILLCLIMB_MODEL."),
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
    from agent.controller import climb as climb_case
    from agent.proposers.choice import Kind, Wishes, choose, describe
    from agent.rebuilding import mirror_study
    from agent.request import Request, Tools
    from agent.screen import choose_screen
    from harness.case.case import Case, find_case
    from harness.judge.pool import LocalJudge

    if json and quiet:
        raise UsageError("--json and --quiet: they exclude each other; drop one")
    if proposer not in tuple(Kind):
        raise UsageError(f"--proposer {proposer}: there is no such proposer; choose among {', '.join(Kind)}")
    budgets = Budgets(budget_seconds, budget_candidates, patience, budget_tokens, budget_cost)
    wishes = Wishes(
        Kind(proposer), model, base_url, temperature, reasoning_effort, budget_cost, budget_tokens
    )
    folder = find_case(case)
    config, rules = configured(folder), Case(folder).settings
    request = Request(folder, tag, seed, alpha, budgets, describe(wishes, config, rules.llm))
    with ExitStack() as at_end, choose_screen(json=json, quiet=quiet) as screen:
        notifier = make_notifier(config, no_webhook)
        at_end.callback(notifier.close)
        begun = Begun()
        at_end.push(_telling_errors(notifier, begun))
        finished = climb_case(
            request,
            lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
            choose(wishes, config, rules, at_end.callback),
            Tools(
                emit=both(begun.note, both(screen.show, notifier.tell)),
                mirror=mirror_study,
                notifier=notifier,
            ),
        )
    _write_page(Path(finished.folder), quiet=json)
    if finished.interrupted:
        raise typer.Exit(INTERRUPTED)


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


class Begun:
    """Whether the climb has told of anything yet."""

    def __init__(self) -> None:
        self.is_so = False

    def note(self, event: Event) -> None:
        self.is_so = True


def _telling_errors(notifier: Notifier, begun: Begun) -> Callable[..., None]:
    """An exit callback: an error that ends the climb is told, too; a wrong use before it began is the caller's."""

    def tell(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from agent.events import TroubleEvent

        if isinstance(error, UsageError) and not begun.is_so:
            return
        if isinstance(error, Exception) and not isinstance(error, typer.Exit):
            notifier.tell(TroubleEvent(time=time.time(), message=f"the climb ended with an error: {error}"))

    return tell
