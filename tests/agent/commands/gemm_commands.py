"""The gemm commands, as they are typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hillclimb.agent.cli import app
from tests import fakes


def typed_gemm(*words: str, status: int = 0) -> str:
    """What it printed; its own errors are raised."""
    found = CliRunner().invoke(app, ["gemm", *words])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == status, found.output
    return found.stdout


def work_with_stand_in_nvcc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From now on, in this folder, with a compiler that stands in for nvcc there."""
    shutil.copy(Path(fakes.__file__).with_name("nvcc.py"), folder / "nvcc")
    monkeypatch.setenv("CUDACXX", str(folder / "nvcc"))
    monkeypatch.chdir(folder)
    return folder
