"""What a contract declares beside its methods, checked. Each function raises CaseError naming file and attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.case.contract_call import ContractCall


def declared_problems(inner: Contract, file: Path) -> dict[str, Problem]:
    """A plain dict of them."""
    call, given = _ask(inner, file, "problems")
    if not isinstance(given, Mapping) or not given:
        call.refuse(
            "is missing, empty or no mapping", "name the problems as a class attribute: name -> sizes"
        )
    for name, problem in given.items():
        if not isinstance(name, str) or not isinstance(problem, Mapping):
            call.refuse(f"has {name!r}: {problem!r}", "give each name a mapping of sizes, as {'n': 256}")
    return dict(given)


def declared_distributions(inner: Contract, file: Path) -> tuple[str, ...]:
    call, given = _ask(inner, file, "distributions")
    if not isinstance(given, tuple | list) or not given or not all(isinstance(name, str) for name in given):
        call.refuse(f"is {given!r}", 'name the distributions as a class attribute: ("normal", "offset")')
    return tuple(given)


def declared_domains(inner: Contract, file: Path) -> dict[str, tuple[float, float]]:
    call, given = _ask(inner, file, "domains")
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        call.refuse(f"is {given!r}", 'name the inputs: {"x": (-1e4, 1e4)}')
    for name, bounds in given.items():
        if not _is_range(bounds):
            call.refuse(
                f"has {name!r}: {bounds!r}", "give the smallest and the largest value, both finite numbers"
            )
    return {name: (low, high) for name, (low, high) in given.items()}


def declared_reason(inner: Contract, file: Path) -> str:
    """Why inputs are not mixed; empty where they are."""
    call, given = _ask(inner, file, "unmixed")
    if not isinstance(given, str):
        call.refuse(f"is {given!r}", "say in words why inputs cannot be mixed, or leave it out")
    return str(given).strip()


def declared_excuses(inner: Contract, file: Path) -> dict[str, str]:
    call, given = _ask(inner, file, "excused")
    if not isinstance(given, Mapping) or not all(
        isinstance(part, str) and part.strip() for item in given.items() for part in item
    ):
        call.refuse(
            f"is {given!r}", "give a dict of wrong results, as `hillclimb check` names them, to reasons"
        )
    return dict(given)


def _ask(inner: Contract, file: Path, name: str) -> tuple[ContractCall, Any]:
    call = ContractCall(file, f"Contract.{name}")
    with call.errors_reported():
        return call, getattr(inner, name, None)


def _is_range(bounds: object) -> bool:
    return (
        isinstance(bounds, tuple | list)
        and len(bounds) == 2
        and all(isinstance(b, int | float) and not isinstance(b, bool) and math.isfinite(b) for b in bounds)
        and bounds[0] < bounds[1]
    )
