"""The flags that a compiled kernel's source is built with: its knobs, as macros and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from hillclimb.harness.errors import CandidateFault, CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, defaults, load_knobs, to_environment
from hillclimb.harness.records import Reason, Side

FLAG = re.compile(
    r"-(O\w*|f(?!plugin|use-ld|profile|dump)[\w=,.+-]+|m[\w=,.+-]+|std=[\w+]+|[DU]\w+(=[\w.+-]*)?)"
)
"""What a knob may tell a compiler: how to optimise, for which machine, in which dialect, and macros."""


def compiler_flags(side: Side) -> tuple[str, ...]:
    """Those of a side's knobs, set ones before defaults: a value that begins with `-` is flags, others are macros.

    Raises CandidateFault where knobs.yaml is none, or a value is no flag that is allowed.
    """
    try:
        values = to_environment(defaults(load_knobs(Path(side.tree, KNOBS_FILE))))
    except CaseError as error:
        raise CandidateFault(Reason.BAD_KNOBS, str(error)) from error
    return flags_of({**values, **side.knobs})


def flags_of(values: Mapping[str, str]) -> tuple[str, ...]:
    """The flags of knobs by their text. Raises CandidateFault naming the first that is not allowed."""
    return tuple(flag for name, value in values.items() for flag in _flags(name, value))


def _flags(name: str, value: str) -> list[str]:
    if not value.startswith("-") or _is_number(value):
        return [f"-D{name}={value}"]
    flags = value.split()
    for flag in flags:
        if not FLAG.fullmatch(flag):
            detail = f"{name}={value}: {flag} is no flag that a knob may set; use -O, -f, -m, -std, -D or -U"
            raise CandidateFault(Reason.BAD_KNOBS, detail)
    return flags


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
