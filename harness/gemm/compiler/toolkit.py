"""The CUDA compiler of this machine: of a toolkit, or of NVIDIA's wheels."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError

VERSION_SECONDS = 60.0
RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
DEFAULT = Path("/usr/local/cuda/bin/nvcc")


@dataclass(frozen=True)
class Toolkit:
    """An nvcc, and what decides what it makes of a source."""

    nvcc: Path
    release: str
    """Such as 13.0."""
    version: str
    """Of nvcc and of the host's compiler, as they give it."""


def find_toolkit(given: Path | None = None) -> Toolkit:
    """The nvcc that is given, or that of $CUDACXX, of PATH, of $CUDA_HOME, of /usr/local/cuda or of the wheels.

    Raises UsageError where there is none, or where it does not say its version.
    """
    nvcc = given or next(_candidates(), None)
    if nvcc is None:
        raise UsageError(
            "no nvcc: it is not on the PATH, nor in $CUDA_HOME or /usr/local/cuda. Install a CUDA toolkit, or NVIDIA's "
            "wheels with `pip install hillclimb[gemm]`, or give --nvcc"
        )
    told = _told(nvcc)
    found = RELEASE.search(told)
    if not found:
        raise UsageError(f"{nvcc} does not say which nvcc it is ({told[-200:]!r}); give another --nvcc")
    return Toolkit(nvcc.absolute(), found[1], f"nvcc {found[2]}, {_host_compiler()}")


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("CUDACXX"):
        yield Path(named)
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    folders = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [Path(folder) / "bin/nvcc" for folder in folders if folder]
    yield from (place for place in (*places, DEFAULT, *of_wheels()) if place.exists())


def of_wheels() -> list[Path]:
    """Installed as Python packages, the newest first."""
    try:
        folder = Path(str(importlib.metadata.distribution("nvidia-cuda-nvcc").locate_file("nvidia")))
    except importlib.metadata.PackageNotFoundError:
        return []
    return sorted(folder.glob("cu[0-9]*/bin/nvcc"), reverse=True)


def _host_compiler() -> str:
    compiler = shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise UsageError("nvcc needs a C++ compiler beside it, and there is no c++ or g++; install g++")
    return _told(Path(compiler)).partition("\n")[0]


def _told(program: Path) -> str:
    try:
        told = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program} cannot be run ({error}); give another --nvcc") from None
    return told.stdout or told.stderr
