"""A workspace's kernel_manifest.yaml: for each family of operators its implementations, and which of them runs.

The kernels of those that run are what a win claims to use: see hillclimb.harness.engagement.engagement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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

MAX_FAMILIES, MAX_IMPLEMENTATIONS, MAX_NAMES, MAX_PATTERNS, MAX_CHARACTERS = 32, 16, 32, 256, 200
"""Families of a manifest, implementations of a family, entries of a list, patterns of all files and tests, and
characters of a name or pattern. YAML's aliases would make millions of them from a few lines."""

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

    schema_version: Annotated[int, Field(ge=1, le=1)] = Field(alias="schema")
    families: dict[str, OpFamily] = Field(min_length=1)


@dataclass(frozen=True)
class ChosenOps:
    """What a workspace says that runs, under some knobs. Files are told by their paths below it."""

    chosen: Mapping[str, OpImplementation]
    """By family."""
    idle: tuple[OpImplementation, ...]
    """All others."""
    files: tuple[str, ...]
    """All that the workspace has."""

    @property
    def kernels(self) -> Mapping[str, str]:
        """Name of each kernel that is claimed to run -> its family."""
        return {kernel: family for family, one in self.chosen.items() for kernel in one.kernels}

    def files_of(self, family: str) -> list[str]:
        """Of the implementation that runs."""
        return [path for path in self.files if _owns((self.chosen[family],), path)]

    def has_idle(self, path: str) -> bool:
        """Whether a file belongs to implementations that do not run, and to none that does."""
        return _owns(self.idle, path) and not _owns(tuple(self.chosen.values()), path)


def read_chosen(workspace: Path, knobs: Mapping[str, str]) -> ChosenOps | None:
    """What the manifest in a workspace says that runs with these environment variables; None where there is none.

    Raises CaseError for a manifest that is wrong by itself, or by the workspace's files and knobs.
    """
    path = workspace / MANIFEST_FILE
    if path.is_symlink():
        raise CaseError(path, "", "is a link", "put the file itself there")
    if not path.exists():
        return None
    families, declared = _read(path).families, load_knobs(workspace / KNOBS_FILE)
    files = tuple(file.relative_to(workspace).as_posix() for file in regular_files(workspace))
    chosen: dict[str, OpImplementation] = {}
    idle: list[OpImplementation] = []
    for name, family in families.items():
        key = f"families.{name}"
        _require_files(path, key, family, files)
        choice = _choice(path, key, family, declared, knobs)
        chosen[name] = family.implementations[choice]
        idle += [one for other, one in family.implementations.items() if other != choice]
    count = sum(len(one.kernels) for one in chosen.values())
    if count > len({kernel for one in chosen.values() for kernel in one.kernels}):
        raise CaseError(
            path, "families", "claim a kernel twice", "give each kernel that runs a name of its own"
        )
    if count > MAX_CLAIMED:
        raise CaseError(path, "families", f"claim {count} kernels", f"name at most {MAX_CLAIMED}")
    return ChosenOps(chosen, tuple(idle), files)


def regular_files(workspace: Path) -> list[Path]:
    """No folders, links, sockets and pipes, however they are called."""
    return sorted(path for path in workspace.rglob("*") if path.is_file() and not path.is_symlink())


def _read(path: Path) -> KernelManifest:
    document = read_yaml(path)
    _require_few(path, document)
    try:
        return KernelManifest.model_validate(document)
    except ValidationError as error:
        raise case_error(path, error, page=PAGE) from None


def _require_few(path: Path, document: Mapping[str, Any]) -> None:
    """Raises CaseError for what is too much to be looked at entry by entry."""
    families = _entries(path, "families", document.get("families"), MAX_FAMILIES)
    patterns = 0
    for name, family in families.items():
        inner = family.get("implementations") if isinstance(family, dict) else None
        for one, body in _entries(path, f"families.{name}", inner, MAX_IMPLEMENTATIONS).items():
            for key in ("kernels", "files", "tests"):
                entries = body.get(key) if isinstance(body, dict) else None
                found = entries if isinstance(entries, list) else []
                patterns += len(found) * (key != "kernels")
                _entries(
                    path,
                    f"families.{name}.{one}.{key}",
                    dict.fromkeys(str(one) for one in found[: MAX_NAMES + 1]),
                    MAX_NAMES,
                )
    if patterns > MAX_PATTERNS:
        raise CaseError(path, "families", f"have {patterns} patterns", f"keep at most {MAX_PATTERNS}, with *")


def _entries(path: Path, key: str, found: object, most: int) -> Mapping[str, Any]:
    entries = found if isinstance(found, dict) else {}
    if len(entries) > most:
        raise CaseError(path, key, f"has {len(entries)} entries", f"keep at most {most}")
    for name in entries:
        if len(str(name)) > MAX_CHARACTERS:
            problem = f"has a name of {len(str(name))} characters"
            raise CaseError(path, key, problem, f"use at most {MAX_CHARACTERS}")
    return entries


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
            path, key, f"{family.knob}'s values and the implementations differ: {strange[:6]}", remedy
        )
    default = environment_text(knob.default)
    _require_no_draft(path, key, family, default)
    choice = environment.get(family.knob, default)
    if choice not in family.implementations:
        raise CaseError(
            path, key, f"{family.knob} is set to {choice[:60]!r}", f"set one of {', '.join(values)}"
        )
    return choice


def _require_no_draft(path: Path, key: str, family: OpFamily, name: str) -> None:
    if family.implementations[name].status == "draft":
        raise CaseError(
            path, key, f"{name} is a draft and runs by default", "call it ready once it is tested"
        )


def _require_files(path: Path, key: str, family: OpFamily, files: Sequence[str]) -> None:
    """Every pattern has a file, every test is there, and what is ready has one."""
    for name, one in family.implementations.items():
        at = f"{key}.implementations.{name}"
        for pattern in (*one.files, *one.tests):
            if not any(fnmatch(file, pattern) for file in files):
                raise CaseError(
                    path, at, f"{pattern!r} is no file of the workspace", "add it, or mend its name"
                )
        if one.status == "ready" and not one.tests:
            raise CaseError(
                path, f"{at}.tests", "is empty, and it is ready", "name its tests, or call it a draft"
            )


def _owns(implementations: tuple[OpImplementation, ...], path: str) -> bool:
    return any(fnmatch(path, pattern) for one in implementations for pattern in one.files)
