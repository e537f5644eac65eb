"""A compiler that stands in for nvcc, and says what it was asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hillclimb.harness.gemm.compiler.toolkit import Toolkit, find_toolkit
from tests import fakes


@pytest.fixture
def toolkit(tmp_path: Path) -> Toolkit:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    shutil.copy(Path(fakes.__file__).with_name("nvcc.py"), nvcc)
    return find_toolkit(nvcc)
