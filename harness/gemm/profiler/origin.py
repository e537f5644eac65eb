"""What a cutlass_profiler was built from, in a file beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.records.record import Record

VERSION_SECONDS = 60.0
VERSION = re.compile(r"CUTLASS (\d+(?:\.\d+)+)\b")


class ProfilerOrigin(Record):
    """One binary's."""

    schema_version: Literal[1] = Field(1, alias="schema")
    binary_sha256: str
    software: dict[str, str]
    """Versions by name: cutlass, cuda, compiler."""
    kernels: tuple[str, ...]
    failed: tuple[str, ...] = ()
    """Kernels that did not compile."""


def origin_file(binary: Path) -> Path:
    """Where it stands."""
    return binary.with_name(f"{binary.name}.json")


def software_of(binary: Path, sha256: str) -> dict[str, str]:
    """Versions by name: of the file beside it, where that is this binary's; else what it says itself."""
    try:
        origin = ProfilerOrigin.model_validate_json(origin_file(binary).read_bytes())
    except (OSError, ValidationError):
        origin = None
    if origin and origin.binary_sha256 == sha256:
        return origin.software
    try:
        command = [str(binary), "--version"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = VERSION.match(told.stdout)
    return {"cutlass": found[1]} if found else {}
