"""A folder of generated kernels: libraries, and one file that says what is in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.compiler.store import BuildOutcome
from hillclimb.harness.gemm.folder import write
from hillclimb.harness.gemm.generator.point import KernelPoint
from hillclimb.harness.records.record import Record

CATALOG = "kernels.json"
LIBRARIES = "libraries"


class GeneratedKernel(Record):
    """One set of parameters, and what became of it."""

    point: KernelPoint
    outcome: BuildOutcome
    library: str = ""
    """File in the folder, which has the kernel's function under its name."""
    registers: int = 0
    """Of a thread, as the compiler tells."""
    spill_bytes: int = 0
    losses: tuple[str, ...] = ()
    """Numbers of what ptxas gave up."""
    diagnostics: str = ""
    """File with all that the compiler wrote."""

    @property
    def is_sound(self) -> bool:
        """Whether it was built, and keeps its sums in registers."""
        return self.outcome == "built" and not self.spill_bytes and not self.losses


class KernelCatalog(Record):
    """All of a folder."""

    schema_version: Literal[1] = Field(1, alias="schema")
    architecture: str
    software: dict[str, str]
    """Versions by name."""
    kernels: tuple[GeneratedKernel, ...]


def read_catalog(folder: Path) -> KernelCatalog:
    """Raises UsageError where there is none."""
    path = folder / CATALOG
    try:
        return KernelCatalog.model_validate_json(path.read_bytes())
    except OSError:
        raise UsageError(
            f"no {path}; write one with `hillclimb gemm generate --output-dir {folder}`"
        ) from None
    except ValidationError as error:
        raise UsageError(f"{path} has {error.error_count()} slips; generate it anew") from None


def write_catalog(folder: Path, catalog: KernelCatalog, libraries: Sequence[tuple[str, Path]]) -> None:
    """With copies of its libraries, which are (name, file). Those of earlier kernels go."""
    place = folder / LIBRARIES
    place.mkdir(parents=True, exist_ok=True)
    for name, path in libraries:
        if not (place / name).exists():
            _copy(path, place / name)
    write(folder / CATALOG, catalog.model_dump_json(by_alias=True, indent=1) + "\n")
    kept = {name for name, _ in libraries}
    for old in place.iterdir():
        if old.name not in kept:
            old.unlink()


def _copy(path: Path, target: Path) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    try:
        draft.hardlink_to(path)
    except OSError:  # another file system
        shutil.copy(path, draft)
    draft.replace(target)
