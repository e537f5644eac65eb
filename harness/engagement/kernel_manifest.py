"""A workspace's kernel_manifest.yaml: for each family of operators its implementations, and which of them runs.

The kernels of those that run are what a win claims to use: see hillclimb.harness.engagement.engagement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, Knobs, environment_text, load_knobs
from hillclimb.harness.wording import choices
from hillclimb.harness.yaml_errors import case_error, read_yaml

MANIFEST_FILE = "kernel_manifest.yaml"
"""Below workspace/."""

PAGE = "docs/reference/kernel-manifest.md"

MAX_CLAIMED = 32
"""Kernels that run, of all families: each has a row of a profile."""

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
"""A function of the workspace's own, without its file and its namespaces."""


class _ManifestBase(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OpImplementation(_ManifestBase):
    """One way to compute a family's operators."""

    status: Literal["ready", "draft", "stock"]
    """`ready` may run; `draft` may be chosen by a knob, and is no default; `stock` is a framework's and names nothing.
    """
    kernels: list[FunctionName] = Field(default_factory=list)
    """Functions that run where this one is chosen: of Python, of a compiled library, or on the GPU."""
    files: list[str] = Field(default_factory=list)
    """Patterns of its files, below the workspace."""
    tests: list[str] = Field(default_factory=list)
    """Files below the workspace."""
    doc: str = ""

    @model_validator(mode="after")
    def _names_what_runs(self) -> Self:
        if self.status == "stock" and (self.kernels or self.files):
            raise ValueError("is stock and names kernels or files; call it ready or draft, or leave them out")
        if self.status != "stock" and not (self.kernels and self.files):
            raise ValueError("names no kernels or no files; give both, or call it stock")
        return self


class OpFamily(_ManifestBase):
    """Operators that are implemented together, in one way or another."""

    implementations: dict[str, OpImplementation] = Field(min_length=1)
    default: str | None = None
    """Which implementation runs; where a knob says so, the knob's default does."""
    knob: str | None = None
    """Of knobs.yaml, whose values are names of implementations."""
    doc: str = ""

    @model_validator(mode="after")
    def _one_place_says_which_runs(self) -> Self:
        if (self.default is None) == (self.knob is None):
            raise ValueError(
                "give either `default`, an implementation, or `knob`, whose default in knobs.yaml is one"
            )
        if self.default is not None and self.default not in self.implementations:
            known = choices(self.default, self.implementations)
            raise ValueError(f"default is {self.default!r}; choose one of {known}")
        return self


class KernelManifest(_ManifestBase):
    """The whole file."""

    schema_version: Literal[1] = Field(alias="schema")
    families: dict[str, OpFamily] = Field(min_length=1)


@dataclass(frozen=True)
class ChosenOps:
    """What a workspace says that runs, under some knobs."""

    chosen: Mapping[str, OpImplementation]
    """By family."""
    idle: tuple[OpImplementation, ...]
    """All others."""

    @property
    def kernels(self) -> Mapping[str, str]:
        """Name of each kernel that is claimed to run -> its family."""
        return {kernel: family for family, one in self.chosen.items() for kernel in one.kernels}

    def has_idle(self, path: str) -> bool:
        """Whether a file belongs to implementations that do not run, and to none that does."""
        return _owns(self.idle, path) and not _owns(tuple(self.chosen.values()), path)


def read_chosen(workspace: Path, knobs: Mapping[str, str]) -> ChosenOps | None:
    """What the manifest in a workspace says that runs with these environment variables; None where there is none.

    Raises CaseError for a manifest that is wrong by itself, or by the workspace's files and knobs.
    """
    path = workspace / MANIFEST_FILE
    if not path.exists():
        return None
    families, declared = _read(path).families, load_knobs(workspace / KNOBS_FILE)
    chosen: dict[str, OpImplementation] = {}
    idle: list[OpImplementation] = []
    for name, family in families.items():
        key = f"families.{name}"
        _require_files(path, key, family)
        choice = _choice(path, key, family, declared, knobs)
        chosen[name] = family.implementations[choice]
        idle += [one for other, one in family.implementations.items() if other != choice]
    count = sum(len(one.kernels) for one in chosen.values())
    if count > MAX_CLAIMED:
        raise CaseError(path, "families", f"claim {count} kernels", f"name at most {MAX_CLAIMED}")
    return ChosenOps(chosen, tuple(idle))


def _read(path: Path) -> KernelManifest:
    try:
        return KernelManifest.model_validate(read_yaml(path))
    except ValidationError as error:
        raise case_error(path, error, page=PAGE) from None


def _choice(path: Path, key: str, family: OpFamily, knobs: Knobs, environment: Mapping[str, str]) -> str:
    """The implementation that runs."""
    if family.knob is None:
        assert family.default is not None
        _require_no_draft(path, f"{key}.default", family, family.default)
        return family.default
    key = f"{key}.knob"
    if (knob := knobs.get(family.knob)) is None:
        raise CaseError(path, key, f"{family.knob} is no knob", f"declare it in {KNOBS_FILE}")
    values = [environment_text(value) for value in knob.values() or ()]
    if strange := sorted(set(values) ^ set(family.implementations)):
        remedy = "give the knob one value for each implementation, called as it is"
        raise CaseError(
            path, key, f"{family.knob}'s values and the implementations differ: {strange}", remedy
        )
    default = environment_text(knob.default)
    _require_no_draft(path, key, family, default)
    return environment.get(family.knob, default)


def _require_no_draft(path: Path, key: str, family: OpFamily, name: str) -> None:
    if family.implementations[name].status == "draft":
        raise CaseError(
            path, key, f"{name} is a draft and runs by default", "call it ready once it is tested"
        )


def _require_files(path: Path, key: str, family: OpFamily) -> None:
    """Every pattern has a file, every test is there, and what is ready has one."""
    present = _files(path.parent)
    for name, one in family.implementations.items():
        at = f"{key}.implementations.{name}"
        for pattern in (*one.files, *one.tests):
            if not any(fnmatch(file, pattern) for file in present):
                raise CaseError(
                    path, at, f"{pattern!r} is no file of the workspace", "add it, or mend its name"
                )
        if one.status == "ready" and not one.tests:
            raise CaseError(
                path, f"{at}.tests", "is empty, and it is ready", "name its tests, or call it a draft"
            )


def _files(workspace: Path) -> list[str]:
    return [file.relative_to(workspace).as_posix() for file in workspace.rglob("*") if file.is_file()]


def _owns(implementations: tuple[OpImplementation, ...], path: str) -> bool:
    return any(fnmatch(path, pattern) for one in implementations for pattern in one.files)
