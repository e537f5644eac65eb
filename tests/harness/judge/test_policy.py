"""Source that breaks a case's policy is named with file and line; honest kernels pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.case.case import Policy
from harness.errors import CandidateFault
from harness.judge.policy import check_policy
from harness.records import Reason

HONEST = """
import os
import numpy as np
from numba import njit, prange
import tiles

@njit(parallel=True)
def run(a, b, c):
    for i in prange(a.shape[0]):
        c[i] = a[i] * getattr(b, "T")[i]
"""


def _write(folder: Path, source: str) -> Path:
    (folder / "kernel.py").write_text(source)
    (folder / "tiles.py").write_text("SIZE = 4\n")
    return folder


def test_an_honest_kernel_passes(tmp_path: Path) -> None:
    check_policy(_write(tmp_path, HONEST), Policy())


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch\n", "imports 'torch'"),
        ("import ctypes\n", "imports 'ctypes'"),
        ("from scipy.linalg import blas\n", "imports 'scipy'"),
        ("import numpy as np\nf = np.dot\n", "finished operator (dot)"),
        ("from numpy import matmul as m\n", "finished operator (matmul)"),
        ("def run(a, b, c):\n    c[:] = a @ b\n", "finished operator (@)"),
        ("def run(a, b, c):\n    c @= b\n", "finished operator (@)"),
        ("m = __import__('torch')\n", "hides what the code does"),
        ("eval('1')\n", "hides what the code does"),
        ("import numpy as np\nf = getattr(np, 'd' + 'ot')\n", "computed name"),
        ("from tests import secret\n", "imports 'tests'"),
    ],
)
def test_each_offence_is_named(tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, source), Policy())
    assert fault.value.reason is Reason.POLICY
    assert says in fault.value.detail
    assert "kernel.py:" in fault.value.detail


def test_allowed_library_calls_pass(tmp_path: Path) -> None:
    folder = _write(tmp_path, "def run(a, b, c):\n    c[:] = a @ b\n")
    check_policy(folder, Policy(library_calls=True))


def test_a_file_that_does_not_parse_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, "def run(:\n"), Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD


def test_workspace_tests_may_use_what_kernels_may_not(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_kernel.py").write_text("import pytest\nx = a @ b\n")
    check_policy(_write(tmp_path, HONEST), Policy())
