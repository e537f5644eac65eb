"""`hillclimb evaluate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import (
    INTERRUPTED,
    REJECTED,
    CaseArgument,
    JsonOption,
    TrustOption,
    WebhookOption,
    configured,
    emit_to_both,
    make_notifier,
    show_progress,
)
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.agent.evaluate.evaluation import EvaluationRequest, EvaluationResult
    from hillclimb.agent.notify.notifier import Notifier
    from hillclimb.harness.records import Watch

AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="REV|PATH|FILE.py",
        help="What it must beat: a version, or a yardstick, a .py file that calls a library. Default: HEAD.",
    ),
]


def evaluate(
    case: CaseArgument,
    candidate: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH|REV", help="What to judge. Default: the working files."),
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Set a knob in its environment; may be repeated.")
    ] = None,
    against: AgainstOption = None,
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
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Judge one version of a workspace against another: gate, screening, decision. Exit status 0 kept, 1 rejected.

    Nothing is written unless `--commit` is given.

    Examples:

    - `hillclimb evaluate demo/cpu_matmul --from hillclimb/demo/cpu_matmul/first --against main`

    - `hillclimb evaluate demo/cpu_matmul --against cases/demo/cpu_matmul/yardstick.py`

    - `hillclimb evaluate demo/cpu_matmul --from ../try --commit --tag first --idea "B packed" --author agent`
    """
    from hillclimb.agent.evaluate.evaluation import EvaluationRequest
    from hillclimb.agent.evaluate.evaluation import evaluate as evaluate_case
    from hillclimb.harness.case.case import find_case

    question = EvaluationRequest(find_case(case), candidate, against, tuple(knob or ()), trust_workspace)
    notifier = make_notifier(configured(question.case), no_webhook, wins_only=True)
    log = TimedLog(log_file)
    watch = log.watching(show_progress(json))
    if commit:
        found = _land(question, tag, author, idea, family, watch, notifier)
    else:
        _refuse_without_commit(tag=tag, idea=idea, family=family, author=author)
        found = evaluate_case(question, watch).posted(notifier.webhook(0, kept=False))
    log.show(found, _describe, json=json)
    if not found.kept:
        raise typer.Exit(REJECTED)


def _land(
    question: EvaluationRequest,
    tag: str | None,
    author: str | None,
    idea: str | None,
    family: str | None,
    watch: Watch,
    notifier: Notifier,
) -> EvaluationResult:
    """Judge it as a candidate of a run."""
    from hillclimb.agent.climb.request import Tools
    from hillclimb.agent.evaluate.submit import CandidateSubmission, ProgressRelay, submit_candidate
    from hillclimb.harness.judge.pool import LocalJudge

    if author not in (None, "human", "agent"):
        raise UsageError(f"--author {author}: choose human or agent")
    landing = CandidateSubmission(
        question, tag, "agent" if author == "agent" else "human", idea or "", family or ""
    )
    listener = ProgressRelay(watch, lambda message: print(f"hillclimb: {message}", file=sys.stderr))
    trust = question.trust_workspace
    found = submit_candidate(
        landing,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust),
        Tools(emit=emit_to_both(listener.forward, notifier.notify), notifier=notifier),
    )
    if found is None:
        print("hillclimb: interrupted; the same command, or a climb, goes on with it", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    return found


def _refuse_without_commit(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name} {value}: is for --commit; add that, or drop --{name}")


def _describe(found: EvaluationResult) -> str:
    versions = f"{found.candidate} against {'the yardstick ' if found.yardstick else ''}{found.against}"
    setting = f" with {', '.join(f'{k}={v}' for k, v in found.knobs.items())}" if found.knobs else ""
    where = f"\n{_place(found)}" if found.run else ""
    if not found.kept:
        return f"rejected: {found.reason}: {found.detail}\n{found.case}: {versions}{setting}{where}"
    speedup = found.confirmation.speedup if found.confirmation else None
    return f"kept: {speedup} faster\n{found.case}: {versions}{setting}{where}"


def _place(found: EvaluationResult) -> str:
    """Where a candidate that was brought by hand ended up."""
    commit = f"commit {found.commit}, {found.ref}" if found.commit else "no commit"
    return f"candidate {found.n} of run {found.run}: {commit}"
