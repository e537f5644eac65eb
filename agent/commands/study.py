"""Commands over whole families of cases that bring several kernels each: study list, test, profile, plot, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import REJECTED, JsonOption, TrustOption, show_progress
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.studies.counting import LaneResult
    from hillclimb.harness.studies.gating import GateResult
    from hillclimb.harness.studies.profiling import VariantTimes
    from hillclimb.harness.studies.study import StudyCase

study = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Test and time families of cases that bring a plain kernel and fast ones side by side.

    A study is a folder below `cases`, and a case belongs to one if its workspace has a `baseline.py`. Every other
    module of the workspace that defines the entry's function is one more variant.

    Examples:

    - `hillclimb study list`

    - `hillclimb study test --case softmax_optimize`

    - `hillclimb study profile --study unroll_for_loop --resume`""",
)

StudyOption = Annotated[
    str | None, typer.Option("--study", "-s", metavar="NAME", help="One study. Default: all of them.")
]
CaseOption = Annotated[
    str | None,
    typer.Option(
        "--case", "-c", metavar="NAME", help="One case; its study is found where it is in one alone."
    ),
]
ListOption = Annotated[
    bool, typer.Option("--list", "-l", help="List studies and cases, and do nothing else.")
]


@study.command("list")
def list_studies(
    study: StudyOption = None,
    case: CaseOption = None,
    _list_only: ListOption = False,
    json: JsonOption = False,
) -> None:
    """List studies and their cases, or those chosen: what `test` and `profile` would go through.

    Example: `hillclimb study list --study mask_percentage --json`
    """
    _print_cases(_chosen(study, case), json)


@study.command()
def test(
    study: StudyOption = None,
    case: CaseOption = None,
    list_only: ListOption = False,
    json: JsonOption = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Bring every kernel of the chosen cases before its gate: every problem, distribution and seed.

    Without a GPU the kernels are compiled for their target, and the small problems interpreted. All cases are run,
    whatever fails; the exit status is 1 if anything did.

    Example: `hillclimb study test -s unroll_for_loop -c fast_rope_embedding`
    """
    from hillclimb.harness.studies.gating import gate_cases

    cases = _chosen(study, case)
    if list_only:
        _print_cases(cases, json)
        return
    found = gate_cases(
        cases,
        TimedLog(log_file).watching(show_progress(json)),
        (lambda _: None) if json else _tell_gated,
        trust_workspace=trust_workspace,
    )
    if json:
        print(found.model_dump_json())
    else:
        failed = [gated for gated in found.results if not gated.passed]
        print(
            f"{len(found.results) - len(failed)} of {count(len(found.results), 'kernel')} passed, "
            f"in {count(len(cases), 'case')}"
        )
        for gated in failed:
            _tell_gated(gated)
    if not found.passed:
        raise typer.Exit(REJECTED)


@study.command()
def profile(
    study: StudyOption = None,
    case: CaseOption = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Only the problems of this suite; may be repeated. Default: all suites."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Leave out what the table already has of these very files and device."),
    ] = False,
    lanes: Annotated[
        bool,
        typer.Option(
            "--lanes/--no-lanes", help="Count masked lanes too, interpreted: some seconds a kernel."
        ),
    ] = True,
    list_only: ListOption = False,
    json: JsonOption = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Time every kernel of the chosen cases, and duel it with the baseline; writes STUDY/proton_times.csv.

    Each problem's rows are in the table as soon as they are measured. Where a case has a yardstick.py, that runs in
    the same duels, compiled by torch.compile.

    Example: `hillclimb study profile --case rmsnorm_fused --suite main`
    """
    from hillclimb.harness.studies.profiling import TimingOptions, profile_cases

    cases = _chosen(study, case)
    if list_only:
        _print_cases(cases, json)
        return
    wish = TimingOptions(tuple(suite or ()), resume, lanes, trust_workspace)
    _require_timing_device(cases)
    found = profile_cases(
        cases,
        wish,
        TimedLog(log_file).watching(show_progress(json)),
        (lambda _: None) if json else _tell_profiled,
    )
    if json:
        print(f"[{','.join(profiled.model_dump_json() for profiled in found)}]")
    if not all(profiled.passed for profiled in found):
        raise typer.Exit(REJECTED)


@study.command()
def lanes(
    study: StudyOption = None,
    case: CaseOption = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            help="A problem of the case; may be repeated. Default: the two largest of 1 MiB at most."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Count the masked lanes of every load and store, and the trips of every loop, with Triton's interpreter.

    Needs no GPU. Every kernel of the chosen cases is called once on each problem.

    Example: `hillclimb study lanes --case quantize_kv_transform`
    """
    from hillclimb.harness.studies.counting import count_cases

    found = count_cases(
        _chosen(study, case), problem or (), show_progress(json), (lambda _: None) if json else _tell_counted
    )
    if json:
        print(f"[{','.join(counted.model_dump_json() for counted in found)}]")
    if not all(counted.passed for counted in found):
        raise typer.Exit(REJECTED)


@study.command()
def plot(study: StudyOption = None) -> None:
    """Draw each study's table: speedups with their intervals, and a roofline; writes STUDY/*.png.

    Example: `hillclimb study plot --study unroll_for_loop`
    """
    from hillclimb.harness.studies.plots import draw

    for folder in _folders(study):
        for picture in draw(folder):
            print(picture)


@study.command()
def report(study: StudyOption = None) -> None:
    """Write each study's table and pictures as one self-contained page: STUDY/report.html.

    Example: `hillclimb study report --study mask_percentage`
    """
    from hillclimb.harness.studies.page import write_page

    for folder in _folders(study):
        print(write_page(folder))


def _print_cases(cases: list[StudyCase], json: bool) -> None:
    import json as to_text

    studies: dict[str, list[str]] = {}
    for case in cases:
        studies.setdefault(case.study, []).append(case.name)
    if json:
        print(to_text.dumps(studies))
        return
    for name, of_it in studies.items():
        print("\n  ".join([f"{name} ({count(len(of_it), 'case')})", *of_it]))


def _chosen(study: str | None, case: str | None) -> list[StudyCase]:
    from hillclimb.harness.case.case import find_cases_folder
    from hillclimb.harness.studies.study import choose_cases

    return choose_cases(find_cases_folder(), study, case)


def _folders(study: str | None) -> list[Path]:
    """Of the chosen studies, those that have a table. Raises UsageError where none has."""
    from hillclimb.harness.errors import UsageError
    from hillclimb.harness.studies.times import TABLE_FILE

    folders = dict.fromkeys(case.folder.parent for case in _chosen(study, None))
    measured = [folder for folder in folders if (folder / TABLE_FILE).is_file()]
    if not measured:
        raise UsageError(
            f"no {TABLE_FILE} in {', '.join(map(str, folders))}; measure first: hillclimb study profile"
        )
    return measured


def _require_timing_device(cases: list[StudyCase]) -> None:
    """Raises UsageError before anything is begun where nothing can be timed. A broken case is told of in its turn."""
    from hillclimb.agent.machine.timing_device import require_timing_device
    from hillclimb.harness.case.case import Case
    from hillclimb.harness.errors import CaseError

    for case in cases:
        try:
            require_timing_device(Case(case.folder))
        except CaseError:
            continue


def _tell_gated(gated: GateResult) -> None:
    outcome = "passed" if gated.passed else "failed"
    print(f"{outcome}: {_name(gated.study, gated.case, gated.variant)}: {_gating(gated)}", flush=True)


def _gating(gated: GateResult) -> str:
    """What the gate found, or why it was not reached."""
    report = gated.report
    if report is None:
        return gated.error
    if not report.passed:
        return f"{report.reason}: {report.detail}"
    return (
        f"{count(report.runs, 'check')}, largest error {report.worst:.3f} of the budget, at {report.worst_at}"
    )


def _name(*parts: str) -> str:
    """Study, case and what of it, as far as they are known."""
    return "/".join(filter(None, parts))


def _tell_counted(counted: LaneResult) -> None:
    from hillclimb.agent.llm.briefing.lanes import lane_lines

    name = _name(counted.study, counted.case, counted.variant)
    if counted.lanes is None:
        print(f"failed: {name}: {counted.error}", flush=True)
        return
    head, *lines = lane_lines(counted.lanes, str)
    print(f"{name}: {head}", *(f"  {line}" for line in lines), sep="\n", flush=True)


def _tell_profiled(profiled: VariantTimes) -> None:
    name = _name(profiled.study, profiled.case, profiled.problem)
    if profiled.error:
        print(f"failed: {name}: {profiled.error}", flush=True)
    elif not profiled.rows:
        print(f"kept: {name}: the table has it", flush=True)
    for row in {row.variant: row for row in profiled.rows}.values():
        told = "not timed" if row.call_us is None else f"{row.call_us:.4g} µs a call"
        share = "" if row.copy_share is None else f", {row.copy_share:.1%} of a copy"
        over = (
            ""
            if row.speedup is None
            else f", {row.speedup:.3f}x [{row.speedup_low:.3f}, {row.speedup_high:.3f}] the baseline"
        )
        note = f" ({row.note})" if row.note else ""
        print(f"{name}/{row.variant}: {told}{share}{over}{note}", flush=True)
