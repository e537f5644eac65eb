"""The CUDA compiler of this machine: of a toolkit, or of NVIDIA's wheels."""

from __future__ import annotations

import hashlib
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
HOST_COMPILERS = ["c++", "g++"]

PROGRAMS = ("nvcc", "nvcc.profile", "cudafe++", "ptxas", "fatbinary", "nvlink")
DECIDING = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
)
"""Variables that change what nvcc and the host's compiler make of a source."""

PLAN_LINE = re.compile(r"^#\$ (\w+)=(.*)$", re.MULTILINE)
INCLUDED = re.compile(r'"-I([^"]+)"')


@dataclass(frozen=True)
class Toolkit:
    """An nvcc, and what decides what it makes of a source."""

    nvcc: Path
    release: str
    """Such as 13.0."""
    version: str
    """Of nvcc and of the host's compiler, as they give it."""
    digest: str = ""
    """sha256 of what compiles: the programs of the toolkit, its headers by name and size, the host's compiler by
    version, and what the environment sets."""


def find_toolkit(given: Path | None = None) -> Toolkit:
    """The nvcc that is given, or that of $CUDACXX, of PATH, of $CUDA_HOME, of /usr/local/cuda or of the wheels.

    Raises UsageError where there is none, or where it does not say its version.
    """
    nvcc = _named(given) if given else next(_candidates(), None)
    if nvcc is None:
        raise UsageError(
            "no nvcc: it is not on the PATH, nor in $CUDA_HOME or /usr/local/cuda. Install a CUDA toolkit, or NVIDIA's "
            "wheels with `pip install hillclimb[gemm]`, or give --nvcc"
        )
    told = _told(nvcc, "--version")
    found = RELEASE.search(told)
    if not found:
        raise UsageError(f"{nvcc} does not say which nvcc it is ({told[-200:]!r}); give another --nvcc")
    version = f"nvcc {found[2]}, {_host_compiler()}"
    return Toolkit(nvcc.absolute(), found[1], version, _digest(nvcc.absolute(), version))


def _named(given: Path) -> Path:
    """A file, or else a program of the PATH."""
    on_path = shutil.which(given.name) if given == Path(given.name) and not given.is_file() else None
    return Path(on_path) if on_path else given


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("CUDACXX"):
        yield Path(shutil.which(named) or named)
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
    """Its version. nvcc takes it from the environment too: a program, or a folder that has it."""
    named = os.environ.get("NVCC_CCBIN", "")
    inside = [Path(named) / name for name in HOST_COMPILERS] if named else []
    candidates = [str(path) for path in inside if path.is_file()] or ([named] if named else HOST_COMPILERS)
    compiler = next(filter(None, map(shutil.which, candidates)), None)
    if not compiler:
        raise UsageError(
            f"nvcc needs a C++ compiler beside it, and there is no {' or '.join(candidates)}; install g++"
        )
    return _told(Path(compiler), "--version").partition("\n")[0]


def _digest(nvcc: Path, version: str) -> str:
    """By what nvcc would run for a source, and the folders it would look into."""
    plan = dict(PLAN_LINE.findall(_told(nvcc, "--dryrun", "-c", "source.cu")))
    programs = Path(plan.get("_HERE_", str(nvcc.parent)))
    compiler = Path(plan.get("CICC_PATH", str(programs)))
    digest = hashlib.sha256(version.encode())
    for program in (*(programs / name for name in PROGRAMS), compiler / "cicc"):
        if program.is_file():
            digest.update(f"{program.name} {_sha256(program)}\n".encode())
    for folder in map(Path, INCLUDED.findall(plan.get("INCLUDES", ""))):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = [f"{path.relative_to(folder)} {path.stat().st_size}\n" for path in files]
        digest.update("".join(listed).encode())
    for name in DECIDING:
        digest.update(f"{name}={os.environ.get(name)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _told(program: Path, *arguments: str) -> str:
    try:
        told = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program} cannot be run ({error}); give another --nvcc") from None
    return told.stdout or told.stderr
