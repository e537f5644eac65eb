"""A folder of generated kernels: libraries, and one file that says what is in them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.compiler.store import BuildOutcome
from hillclimb.harness.gemm.folder import sha256_of, write
from hillclimb.harness.gemm.generator.types import AnyPoint
from hillclimb.harness.records.record import Record

CATALOG = "kernels.json"
LIBRARIES = "libraries"

ARCHITECTURE = "90a"
"""Of H100 and H200: what the templates are written for."""


class GeneratedKernel(Record):
    """One set of parameters, and what became of it."""

    point: AnyPoint = Field(discriminator="generator")
    outcome: BuildOutcome
    library: str = ""
    """File in the folder, which has the kernel's function under its name."""
    library_sha256: str = ""
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

    schema_version: Literal[3] = Field(3, alias="schema")
    architecture: str
    software: dict[str, str]
    """Versions by name."""
    kernels: tuple[GeneratedKernel, ...]

    @property
    def digest(self) -> str:
        """sha256 of which kernels these are; where they lie and what the compiler wrote say nothing of that."""
        told = self.model_dump_json(exclude={"kernels": {"__all__": {"diagnostics", "library_sha256"}}})
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class Library:
    """One that was compiled."""

    name: str
    path: Path
    sha256: str


def catalog_folders(folder: Path) -> list[Path]:
    """This one, or those in it, which have a catalog."""
    return sorted({path.parent for pattern in (CATALOG, f"*/{CATALOG}") for path in folder.glob(pattern)})


def read_catalogs(folder: Path) -> dict[Path, KernelCatalog]:
    """By their folders. Raises UsageError where there are none."""
    folders = catalog_folders(folder)
    if not folders:
        raise UsageError(
            f"{folder} has no kernels; hillclimb gemm generate --output-dir {folder} writes some"
        )
    return {one: read_catalog(one) for one in folders}


def read_catalog(folder: Path) -> KernelCatalog:
    """Raises UsageError where there is none."""
    path = folder / CATALOG
    try:
        return KernelCatalog.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); generate it anew") from None
    except ValidationError as error:
        slips = f"{path} is spoilt or of another version ({error.error_count()} slips)"
        raise UsageError(f"{slips}; delete its folder, and generate it anew") from None


def write_catalog(folder: Path, catalog: KernelCatalog, libraries: Sequence[Library]) -> None:
    """With copies of its libraries. Those of earlier kernels go. The folder is to be locked."""
    place = folder / LIBRARIES
    place.mkdir(parents=True, exist_ok=True)
    for library in libraries:
        if not is_whole(place / library.name, library.sha256):
            _copy(library.path, place / library.name)
    write(folder / CATALOG, catalog.model_dump_json(by_alias=True, indent=1) + "\n")
    kept = {library.name for library in libraries}
    for old in place.iterdir():
        if old.name not in kept:
            old.unlink()


def is_whole(path: Path, sha256: str) -> bool:
    """Whether it is there, with these contents."""
    return path.exists() and sha256_of(path) == sha256


def _copy(path: Path, target: Path) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(path, draft)
    draft.replace(target)
