"""Chooses who reads a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hillclimb.agent.importers.formats import flashinfer, gpu_mode, kernel_tuner, kernelbench, python_file
from hillclimb.agent.importers.formats.imported import DeviceKind, Importer, ImportRequest
from hillclimb.harness.errors import UsageError

IMPORTERS: Sequence[Importer] = (gpu_mode, kernelbench, flashinfer, python_file)
LABELS = [*(importer.LABEL for importer in IMPORTERS), kernel_tuner.LABEL]


def request_of(given: str, device: DeviceKind | None, examples: Sequence[str]) -> ImportRequest:
    """A path, or FILE.py:name. Raises UsageError where there is no such file."""
    path, colon, name = given.rpartition(":")
    if not colon or not name.isidentifier() or Path(given).exists():
        path, name = given, ""
    if not Path(path).exists():
        raise UsageError(f"--from {given!r}: there is no {path}; name a file or folder that is there")
    return ImportRequest(Path(path), name, device, tuple(examples))


def is_space(request: ImportRequest) -> bool:
    """Whether it is a tuning space, which brings knobs and no operator."""
    return not request.name and kernel_tuner.can_read(request.path)


def importer_of(request: ImportRequest) -> Importer:
    """Raises UsageError that lists what is known."""
    found = next((importer for importer in IMPORTERS if importer.can_read(request)), None)
    if found is None:
        known = "; ".join(LABELS)
        raise UsageError(f"--from {request.path}: no known format; what can be imported: {known}")
    return found
