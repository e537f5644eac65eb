"""`hillclimb check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hillclimb.agent.commands.log import LogOption, TimedLog
from hillclimb.agent.commands.options import (
    REJECTED,
    CaseArgument,
    JsonOption,
    TrustOption,
    show_progress,
)
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.evaluate.evaluation import CheckResult
    from hillclimb.harness.records import OracleReport, SurvivingMutant


def check(
    case: CaseArgument,
    json: JsonOption = False,
    log_file: LogOption = None,
    trust_workspace: TrustOption = False,
) -> None:
    """Validate a case's files and bring its baseline, the working files, before the gate.

    Its contract is put to the test, too: results that are wrong on purpose are computed and should not be accepted.
    What is accepted is told, and the case is then not called sound. A problem on which every kernel is right is an
    error.

    Example: `hillclimb check demo/cpu_matmul`
    """
    from hillclimb.agent.evaluate.evaluation import check as check_case
    from hillclimb.harness.case.case import find_case

    case_folder = find_case(case)
    log = TimedLog(log_file)
    found = check_case(case_folder, log.watching(show_progress(json)), trust_workspace=trust_workspace)
    log.show(found, lambda found: _describe_check(found, case_folder), json=json)
    if not found.gate.passed:
        raise typer.Exit(REJECTED)


def _describe_check(found: CheckResult, folder: Path) -> str:
    lines = [f"{found.case}: {_verdict(found)}"]
    if found.oracle is not None:
        lines += [*_describe_oracle(found.oracle), *_describe_omissions(found.oracle)]
    if found.unread_knobs:
        lines.append(f"the source never reads these knobs: {', '.join(found.unread_knobs)}")
    if found.interpreted is not None:
        lines.append(_describe_interpreted(found.interpreted, folder))
    return "\n".join(lines)


def _verdict(found: CheckResult) -> str:
    gate, oracle = found.gate, found.oracle
    if not gate.passed or oracle is None:
        return f"the gate rejects the baseline: {gate.reason}: {gate.detail}"
    worst = f" (largest error {gate.worst:.3f} of the budget, at {gate.worst_at})" if gate.worst_at else ""
    passed = f"the gate passed {count(gate.runs, 'check')}{worst}"
    end = f"sandbox: {found.provenance.sandbox}"
    if found.sound:
        return f"sound; {passed}; {end}"
    return f"{passed}, but the contract accepts {count(len(oracle.accepted), 'wrong result')}; {end}"


def _describe_oracle(found: OracleReport) -> list[str]:
    """What the contract accepts though it is wrong, a line each."""
    if not found.tried:
        return ["the case has no contract, so none was tried"]
    excused = [f"  {mutant.mistake}: excused: {mutant.excuse}" for mutant in found.excused]
    if not found.accepted and not excused:
        return [f"the contract noticed all {found.tried} results that were wrong on purpose"]
    count = len(found.accepted) + len(excused)
    lines = [f"the contract accepted {count} of {found.tried} results that were wrong on purpose:"]
    lines += [f"  {mutant.mistake}: {_nearest(mutant)}" for mutant in found.accepted]
    if found.accepted:
        excused.append(
            "  docs/reference/case-format.md says what to do: mend the contract, or name it in Contract.excused"
        )
    return lines + excused


def _nearest(mutant: SurvivingMutant) -> str:
    """Where it came nearest to being rejected."""
    if not mutant.problem:
        return "nothing that is tried shows it"
    place = f"{mutant.problem}/{mutant.distribution}"
    return f"an error of {mutant.share:.2g} of the budget at the most; nearest to rejection in {place}"


def _describe_omissions(found: OracleReport) -> list[str]:
    """What is not tried, because the contract does not say how."""
    lines = []
    if not found.is_varied:
        lines.append("no sizes are tried but those listed: Contract.vary gives none")
    if not found.has_empty:
        lines.append("no size of 0 is tried: Contract.problems lists none")
    if found.unmixed:
        lines.append(f"inputs are not mixed: {found.unmixed}")
    if found.without_domain:
        lines.append(
            f"no Contract.domains of {', '.join(found.without_domain)}: only values as drawn are tried"
        )
    return lines


def _describe_interpreted(count: int, folder: Path) -> str:
    """What was done in place of running the case where it belongs."""
    from hillclimb.harness.case.case import Case

    architecture = Case(folder).settings.cuda.architecture
    if not count:
        return f"no NVIDIA GPU here: it was compiled for sm_{architecture} at the most, and nothing was run or timed"
    return (
        f"no NVIDIA GPU here: every problem was compiled for sm_{architecture}; the gate interpreted {count} small "
        "ones on the CPU, the others were only compiled, and nothing was timed"
    )
