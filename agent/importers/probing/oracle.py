"""Which wrong results the contract would accept, and which of them it is right to accept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.agent.importers.formats.imported import Plan

if TYPE_CHECKING:
    from hillclimb.harness.judge.contract_mutants import ContractMutants
    from hillclimb.harness.records import SurvivingMutant
    from hillclimb.harness.sources.sourced_contract import SourcedContract

ERROR_BUDGET = 4.0
"""As `gate.error_budget` where a case says nothing else."""

MADE_UP = ("tiny", "odd")
"""Problems that are no source's own."""

NOT_FINITE = "values of another distribution among its own give results that are not finite"

SMALL_BYTES = 1 << 20
"""Most that a problem may move to be asked here."""


def find_accepted(plan: Plan, contract: SourcedContract, source: Path) -> tuple[SurvivingMutant, ...]:
    """Wrong results that no small problem shows. Problems made up here that prove nothing are taken out, and
    inputs are left unmixed where mixed ones have no result.

    Raises CaseError where others prove nothing, or none is left.
    """
    from hillclimb.harness.errors import CaseError
    from hillclimb.harness.judge.mutants.tally import MutantTally

    contract.rule = (source, plan.rule) if plan.rule else None
    small = [name for name, sizes in contract.problems.items() if contract.work(sizes).bytes <= SMALL_BYTES]
    try:
        return _accepted(plan, contract, small)
    except CaseError:
        mutants = _mutants(contract)
        idle = [name for name in MADE_UP if name in small and mutants.try_all(name, MutantTally())]
        if (idle and len(idle) == len(small)) or (not idle and contract.unmixed):
            raise
        if not idle:
            contract.unmixed = NOT_FINITE
        contract.problems = {name: sizes for name, sizes in contract.problems.items() if name not in idle}
        return _accepted(plan, contract, [name for name in small if name not in idle])


def _accepted(plan: Plan, contract: SourcedContract, small: Sequence[str]) -> tuple[SurvivingMutant, ...]:
    from hillclimb.harness.judge.contract_mutants import find_surviving_mutants

    if not small:
        return ()
    return find_surviving_mutants(_mutants(contract), small, plan.timed, True, lambda progress: None).accepted


def _mutants(contract: SourcedContract) -> ContractMutants:
    from hillclimb.harness.case.checked import CheckedContract
    from hillclimb.harness.channel.dtypes import TORCH_DTYPES
    from hillclimb.harness.judge.contract_mutants import ContractMutants

    file = Path("contract.py")
    return ContractMutants(CheckedContract(contract, file, "cpu", TORCH_DTYPES), ERROR_BUDGET, "cpu", file)


def excuses_for(
    accepted: Sequence[SurvivingMutant], ignored: Sequence[str], has_own_sizes: bool
) -> tuple[dict[str, str], list[str]]:
    """Reasons for those that are right to accept, and a line for each of the others."""
    from hillclimb.harness.judge.contract_mutants import LISTED

    excuses, told = {}, []
    sizes = (
        "the source may be right for its own sizes alone, and all of them are gated"
        if has_own_sizes
        else "no other sizes were found that the source can be run with"
    )
    for found in accepted:
        words = found.mistake.split()
        read = next((name for name in ignored if name in words), "")
        if found.mistake == LISTED:
            excuses[LISTED] = sizes
        elif read:
            excuses[found.mistake] = f"the exact result does not depend on {read}"
        else:
            told.append(
                f"oracle: a wrong result is accepted: {found.mistake}; mend the contract or excuse it there"
            )
    return excuses, told
