"""A driver's management library for machines that have none: the real pynvml over tests/harness/device/fake_nvml.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")

H200 = {
    "uuid": "GPU-4279062b-846a-33ce-0869-868e6263c3a6",
    "name": "NVIDIA H200",
    "minor": "0",
    "mode": "0",
    "mig": "0",
    "utilization": "0",
    "milliwatts": "77730",
    "celsius": "41",
    "bits": "6144",
    "sm": "1980",
    "memory": "3201",
    "most_sm": "1980",
    "most_memory": "3201",
    "reasons": "0",
    "used_mib": "0",
    "compute": "",
    "graphics": "",
}
"""As one H200 answered; each is changed by the tests that need it otherwise."""


@dataclass
class FakeDriver:
    """GPUs as lines of a file that the library reads afresh for every answer."""

    library: Path
    file: Path
    gpus: list[dict[str, str]] = field(default_factory=lambda: [dict(H200)])
    general: dict[str, str] = field(default_factory=lambda: {"driver": "580.159.04"})

    def write(self) -> None:
        lines = [f"count {len(self.gpus)}", *(f"{key} {value}" for key, value in self.general.items())]
        lines += [f"{key}.{i} {value}" for i, gpu in enumerate(self.gpus) for key, value in gpu.items()]
        self.file.write_text("\n".join(lines) + "\n")

    def environment(self) -> dict[str, str]:
        self.write()
        kept = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "HILLCLIMB_GPU")}
        return {**kept, "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML": str(self.file)}

    def run(
        self, code: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A Python program that finds this driver."""
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**self.environment(), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here to build the fake driver library")
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-Wall",
            "-Werror",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            target,
            SOURCE,
        ],
        check=True,
    )
    return folder


@pytest.fixture
def fake_driver(fake_library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(fake_library, tmp_path / "nvml.txt")
