"""Candidates of this folder with what they declare of themselves: read from their docstrings, never imported.

A candidate is a file, or a folder with a kernel.py whose docstring declares it.

The first line says what a candidate does. What follows the first empty line is YAML, the fields of `Declared`:

    family: cached-result      a name in families.py; of an honest candidate, what it looks like
    entries: [11]              numbers of the catalogue; own inventions have none
    case: affine               a name in cases.py
    reason: wrong_result       what the judge answers; several where chance decides among them
    says: while timed          and a part of its detail
    stage: gate                how far it gets: gate, screen or confirm
    unread:                    the same where nobody reads the source first
      reason: exited
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator

from hillclimb.harness.records import Reason
from tests.cheats.families import FAMILIES

FOLDER = Path(__file__).parent
ENTRY = "kernel.py"
Stage = Literal["gate", "screen", "confirm"]
STAGES: tuple[Stage, ...] = ("gate", "screen", "confirm")


class Verdict(BaseModel):
    """What the judge is expected to answer; no reason: it keeps the candidate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: tuple[Reason, ...] = ()
    says: str = ""
    stage: Stage = "gate"

    @field_validator("reason", mode="before")
    @classmethod
    def _one_or_several(cls, told: object) -> object:
        return (told,) if isinstance(told, str) else told


class Declared(Verdict):
    """The YAML of one candidate."""

    family: str
    entries: tuple[int, ...] = ()
    case: str
    unread: Verdict | None = None
    """None: the reading of the source lets it through, so there is no second expectation."""
    interpreted: Verdict | None = Field(default=None)
    """Of a candidate for a GPU: what the gate answers where Triton interprets it; None: that shows nothing."""

    @field_validator("family")
    @classmethod
    def _is_known(cls, family: str) -> str:
        if family not in FAMILIES:
            raise ValueError(f"there is no family {family!r}; name one of families.py, or add it there")
        return family


@dataclass(frozen=True)
class Candidate:
    """One file that is a whole workspace, or a folder that is one."""

    place: Path
    does: str
    declared: Declared

    @property
    def name(self) -> str:
        return self.place.stem

    @property
    def files(self) -> dict[str, bytes]:
        """The workspace's files by their paths in it."""
        if self.place.is_file():
            return {ENTRY: self.place.read_bytes()}
        files = (file for file in self.place.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return {str(file.relative_to(self.place)): file.read_bytes() for file in files}


def find(place: str) -> list[Candidate]:
    """The candidates in a folder below this one, by name."""
    found = [*(FOLDER / place).glob("*.py"), *(file.parent for file in (FOLDER / place).glob(f"*/{ENTRY}"))]
    return [read(path) for path in sorted(found)]


def read(place: Path) -> Candidate:
    """One candidate. Raises ValueError where its docstring does not declare what it should."""
    file = place if place.is_file() else place / ENTRY
    told = ast.get_docstring(ast.parse(file.read_bytes())) or ""
    does, _, fields = told.partition("\n\n")
    if not fields:
        raise ValueError(
            f"{file}: its docstring declares nothing; say what it does, and the fields of Declared"
        )
    return Candidate(place, does.strip(), Declared.model_validate(yaml.safe_load(fields)))


def matches(expected: Verdict, reason: Reason | None, detail: str) -> bool:
    """Whether the judge answered what was expected."""
    if reason is None:
        return not expected.reason
    return reason in expected.reason and expected.says in detail


def names(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.name for candidate in candidates]
