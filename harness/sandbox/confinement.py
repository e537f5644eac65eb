"""What a candidate is given: paths, limits, environment, descriptors. The same on every rung."""

from __future__ import annotations

import re
import resource
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.kernel.seccomp import SandboxKind

MAX_OPEN_FILES = 512
MAX_THREADS = 1024
"""Threads and processes. Counted for the candidate alone in a user namespace or as a user of its own."""

LIMIT_WALLS = {"memory limit": resource.RLIMIT_DATA, "file limit": resource.RLIMIT_FSIZE}
"""Names that tests of the canary use to leave a limit out."""

LOADER_VARIABLE = re.compile(
    r"LD_|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|OMP_TOOL|PYTHON(?!HASHSEED$|FAULTHANDLER$)"
)
"""Names that make the loader, libc or Python run other code before the runner has locked the door."""


@dataclass(frozen=True)
class Confinement:
    """What one candidate process may have."""

    workspace: Path
    """Folder of the kernel; read-only inside, at `SandboxLayout.workspace`."""
    memory_bytes: int
    """Private memory (RLIMIT_DATA). Buffers mapped from descriptors do not count."""
    scratch_bytes: int
    """Size of the one writable folder where the rung can limit it, and of any one file."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the rung's own few variables, which win."""
    descriptors: tuple[int, ...] = ()
    """Kept open inside at the same numbers; all others are closed."""
    output: int | None = None
    """Descriptor that becomes stdout and stderr; None discards both."""
    devices: tuple[str, ...] = ()
    """Device nodes to be used inside, by their absolute paths."""
    readable: tuple[Path, ...] = ()
    """Further files and folders, read-only inside under their own names."""
    hidden: tuple[str, ...] = ()
    """Folders of the workspace that are empty inside, where the rung has mounts."""
    tools: bool = False
    """For trusted code under the vendor's tools only, whose two halves talk over sockets; never for a candidate."""
    serves: bool = False
    """Whether it takes connections at a socket among its descriptors."""

    @property
    def kind(self) -> SandboxKind:
        """Which border its system calls meet."""
        if self.tools:
            return "tools"
        if self.serves:
            return "gpu server" if self.devices else "server"
        return "gpu" if self.devices else "cpu"

    def __post_init__(self) -> None:
        """Refuse what could break the border before it stands; raises UsageError."""
        for device in self.devices:
            if not device.startswith("/dev/") or ".." in device or not _is_character_device(device):
                raise UsageError(
                    f"{device!r} is no character device under /dev; pass nodes by their full paths"
                )
        for path in self.readable:
            if not path.is_absolute() or not path.exists():
                raise UsageError(f"{path} cannot be granted for reading; pass an existing absolute path")
        for name in self.environment:
            if LOADER_VARIABLE.match(name):
                raise UsageError(f"environment variable {name} may not be set in a sandbox; rename the knob")
        if not self.workspace.is_dir():
            raise UsageError(
                f"workspace {self.workspace} is not a folder; pass the candidate's materialised tree"
            )


def _is_character_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        return False


@dataclass(frozen=True)
class SandboxLayout:
    """Where things are, as seen inside."""

    workspace: str
    scratch: str
    python_path: str
    """Folder that holds the `harness` package and nothing else."""


@dataclass(frozen=True)
class RungGuarantees:
    """What a rung says of itself, beyond what every rung must hold."""

    namespaces: tuple[str, ...]
    """Namespaces its candidates do not share with the judge."""
    capabilities: int
    """Bit mask of the capabilities they may hold."""
    scratch_is_bounded: bool
    """Whether the sum of what they write is limited, not only each file."""
    variables: tuple[str, ...]
    """Names in their environment when the confinement adds none."""


def base_variables(layout: SandboxLayout) -> dict[str, str]:
    """The rung's own part of the candidate's environment; nothing else is set but what its confinement adds."""
    return {
        **interpreter.loader_variables(),
        "HOME": layout.scratch,
        "LANG": "C.UTF-8",
        "NUMBA_CACHE_DIR": f"{layout.scratch}/numba",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": layout.python_path,
        "PYTHONSAFEPATH": "1",
        "TMPDIR": layout.scratch,
        "TRITON_HOME": layout.scratch,
        "USER": "candidate",
    }


def resource_limits(confinement: Confinement) -> dict[int, int]:
    """Resource limits by RLIMIT number, soft and hard alike, none above the judge's own.

    No RLIMIT_AS: numba and CUDA reserve far more address space than they use.
    """
    wanted = {
        resource.RLIMIT_DATA: confinement.memory_bytes,
        resource.RLIMIT_FSIZE: confinement.scratch_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: max(MAX_OPEN_FILES, *(fd + 64 for fd in confinement.descriptors), 0),
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NPROC: MAX_THREADS,
    }
    ours = {number: resource.getrlimit(number)[1] for number in wanted}
    return {
        number: value if ours[number] < 0 else min(value, ours[number]) for number, value in wanted.items()
    }
