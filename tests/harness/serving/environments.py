"""Environments of pinned packages, for programs that a test runs beside the lab's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def uv() -> str:
    """The program; the test is skipped where it is missing."""
    found = shutil.which("uv", path=f"{ROOT / '.uv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("uv is not here; ./scripts/setup brings it")
    return found


def make_environment(folder: Path, pinned: str) -> Path:
    """A new environment of requirements/<pinned>.txt; its folder of programs."""
    subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    programs = folder / "bin"
    install(pinned, "--python", str(programs / "python"))
    return programs


def install_into(folder: Path, pinned: str) -> None:
    """The packages of requirements/<pinned>.txt as files in a folder, without what they depend on."""
    install(pinned, "--no-deps", "--target", str(folder))


def install(pinned: str, *options: str) -> None:
    file = str(ROOT / "requirements" / f"{pinned}.txt")
    command = [uv(), "pip", "install", "--quiet", "--require-hashes", "--requirement", file]
    subprocess.run([*command, *options], check=True)
