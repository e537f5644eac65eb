"""Commands that ask a judge outside a climb: check, evaluate, profile, review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.options import (
    INTERRUPTED,
    REJECTED,
    CaseArgument,
    JsonOption,
    TrustOption,
    WebhookOption,
    both,
    configured,
    locate,
    make_notifier,
    show_progress,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from agent.evaluation import Checked, Evaluated, Question
    from agent.notify.notifier import Notifier
    from harness.records import OracleReport


def check(case: CaseArgument, json: JsonOption = False, trust_workspace: TrustOption = False) -> None:
    """Validate a case's files and bring its baseline, the working files, before the gate.

    Its contract is put to the test, too: results that leave an input's end out, and results in fewer bits where
    `policy.reduced_precision` is false, are computed and should not be accepted. What is accepted is told.

    Example: `hillclimb check demo/cpu_matmul`
    """
    from agent.evaluation import check as check_case
    from harness.case.case import find_case

    case_folder = find_case(case)
    found = check_case(case_folder, show_progress(json), trust_workspace=trust_workspace)
    print(found.model_dump_json() if json else _describe_check(found, case_folder))
    if not found.gate.passed:
        raise typer.Exit(REJECTED)


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
    notifier = make_notifier(configured(question.case), no_webhook, wins_only=True)
    if commit:
        found = _land(question, tag, author, idea, family, json, notifier)
    else:
        _refuse_without_commit(tag=tag, idea=idea, family=family, author=author)
        found = evaluate_case(question, show_progress(json)).posted(notifier.webhook(0, kept=False))
    print(found.model_dump_json() if json else _describe(found))
    if not found.kept:
        raise typer.Exit(REJECTED)


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

    Without a GPU, a case that is for one is not timed: masked lanes and loop trips are all that is shown.

    Example: `hillclimb profile demo/cpu_matmul --knob MM_THREADS=2`
    """
    from agent.profiling import Subject, show
    from agent.profiling import profile as profile_case
    from harness.case.case import find_case

    subject = Subject(find_case(case), candidate, tuple(knob or ()), trust_workspace)
    found = profile_case(subject, show_progress(json))
    print(found.model_dump_json() if json else show(found))


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
    repository, name = (Repository.open(Path.cwd()), None) if case is None else locate(case)
    subject = find_subject(repository, revision, BASELINE if first_last else against, name)
    found = (measure if first_last else duel)(
        subject,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust_workspace),
        show_progress(json),
    )
    print(found.model_dump_json() if json else describe(found))
    if found.finding != "confirmed":
        raise typer.Exit(REJECTED)


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
    listener = Listener(show_progress(json), lambda message: print(f"hillclimb: {message}", file=sys.stderr))
    trust = question.trust_workspace
    found = land(
        landing,
        lambda folder, log: LocalJudge(folder, log, trust_workspace=trust),
        Tools(emit=both(listener.show, notifier.tell), notifier=notifier),
    )
    if found is None:
        print("hillclimb: interrupted; the same command, or a climb, goes on with it", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    return found


def _describe_check(found: Checked, folder: Path) -> str:
    gate = found.gate
    if not gate.passed:
        told = f"{found.case}: the gate rejects the baseline: {gate.reason}: {gate.detail}"
    else:
        worst = f"largest error {gate.worst:.3f} of the budget, at {gate.worst_at}"
        told = f"{found.case}: sound; the gate passed {gate.runs} checks ({worst}); sandbox: {found.provenance.sandbox}"
    lines = [told]
    if found.oracle is not None:
        lines += _describe_oracle(found.oracle)
    if found.interpreted is not None:
        lines.append(_describe_interpreted(found.interpreted, folder))
    return "\n".join(lines)


def _describe_oracle(found: OracleReport) -> list[str]:
    """What the contract accepts though it is wrong, a line each."""
    if not found.accepted:
        return [f"the contract noticed all {found.tried} results that were wrong on purpose"]
    lines = [
        f"the contract accepted {len(found.accepted)} of {found.tried} results that were wrong on purpose:"
    ]
    for slip in found.accepted:
        where = f"in problem {slip.problem}" if slip.problem else "in every small problem"
        lines.append(f"  {slip.mistake}, {where}: an error of {slip.share:.2g} of the budget at the most")
    return [
        *lines,
        "  see docs/case-format.md on Contract.scale, unless no result depends on what was left out",
    ]


def _describe_interpreted(count: int, folder: Path) -> str:
    """What was done in place of running the case where it belongs."""
    from harness.case.case import Case

    architecture = Case(folder).settings.cuda.architecture
    if not count:
        return f"no NVIDIA GPU here: it was compiled for sm_{architecture} at the most, and nothing was run or timed"
    return (
        f"no NVIDIA GPU here: every problem was compiled for sm_{architecture}; the gate interpreted the {count} "
        "smallest on the CPU, the others were only compiled, and nothing was timed"
    )


def _refuse_without_commit(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name} {value}: is for --commit; add that, or drop --{name}")


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
