"""The CUDA compiler of this machine: of a toolkit, or of NVIDIA's wheels."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.folder import sha256_of

VERSION_SECONDS = 60.0
RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
DEFAULT = Path("/usr/local/cuda/bin/nvcc")

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

SETTING = re.compile(r"^#\$ (\w+)=(.*)$", re.MULTILINE)
"""A line of a plan that runs nothing."""

OF_THE_SHELL = ("#$ PATH=", "#$ LD_LIBRARY_PATH=")
TEMPORARY = re.compile(r"[^\s\"=]*tmpxft_\w+-")
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
    """sha256 of what compiles: the steps that nvcc takes, the toolkit's programs and libraries, its headers by name and
    size, the host's compiler by version, and what the environment sets."""


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
    nvcc = nvcc.absolute()
    versions = _run(nvcc, "--version")
    told = versions.stdout or versions.stderr
    found = RELEASE.search(told)
    if not found:
        raise UsageError(f"{nvcc} does not say which nvcc it is ({told[-200:]!r}); give another --nvcc")
    plan = _plan(nvcc)
    version = f"nvcc {found[2]}, {_host_compiler(plan)}"
    return Toolkit(nvcc, found[1], version, _digest(nvcc, plan, version))


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


def _digest(nvcc: Path, plan: str, version: str) -> str:
    """By what nvcc would run for a source, and the folders it would look into."""
    settings = dict(SETTING.findall(plan))
    programs, library = Path(settings["_HERE_"]), Path(settings.get("NVVMIR_LIBRARY_DIR", ""))
    compiler = Path(settings.get("CICC_PATH", str(programs)))
    digest = hashlib.sha256(version.encode())
    steps = [line for line in plan.splitlines() if not line.startswith(OF_THE_SHELL)]
    digest.update(TEMPORARY.sub("", "\n".join(steps)).encode())
    tools = (nvcc, *(programs / name for name in PROGRAMS), compiler / "cicc", *sorted(library.glob("*.bc")))
    for program in filter(Path.is_file, tools):
        digest.update(f"{program.name} {sha256_of(program)}\n".encode())
    for folder in map(Path, INCLUDED.findall(settings.get("INCLUDES", ""))):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = [f"{path.relative_to(folder)} {path.stat().st_size}\n" for path in files]
        digest.update("".join(listed).encode())
    for name in DECIDING:
        digest.update(f"{name}={os.environ.get(name)}\n".encode())
    return digest.hexdigest()


def _plan(nvcc: Path) -> str:
    """What nvcc would do for a source. Raises UsageError where it does not tell."""
    told = _run(nvcc, "-gencode=arch=compute_90a,code=sm_90a", "--dryrun", "-c", "source.cu")
    plan = "\n".join(line for line in (told.stderr + told.stdout).splitlines() if line.startswith("#$ "))
    if "_HERE_" not in dict(SETTING.findall(plan)):
        last = (told.stderr or told.stdout).strip().rpartition("\n")[2]
        raise UsageError(
            f"{nvcc} does not tell what it would run for a source ({last!r}); it needs g++ beside it, or give another "
            "--nvcc"
        )
    return plan


def _host_compiler(plan: str) -> str:
    """Version of the program that the plan's first step is of."""
    steps = [line.removeprefix("#$ ") for line in plan.splitlines() if not SETTING.match(line)]
    name = shlex.split(steps[0])[0] if steps else "gcc"
    compiler = shutil.which(name)
    if not compiler:
        raise UsageError(f"nvcc needs a C++ compiler beside it, and there is no {name}; install g++")
    return _run(Path(compiler), "--version").stdout.partition("\n")[0]


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(program), *arguments],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program} cannot be run ({error}); give another --nvcc") from None
