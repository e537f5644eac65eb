"""Source that breaks a case's policy is named with file and line; honest kernels pass."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.case.case import Policy
from harness.errors import CandidateFault
from harness.judge.policy import LARGEST, check_policy
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
        ("import numpy as np\nf = getattr(np, 'dot')\n", "finished operator (dot)"),
        ("import numpy as np\nf = getattr(np, '__dict__')['d' + 'ot']\n", "uses '__dict__'"),
        ("import numpy as np\nf = np.__dict__['d' + 'ot']\n", "uses '__dict__'"),
        ("import numpy as np\nf = vars(np)['d' + 'ot']\n", "uses 'vars'"),
        ("from numpy import *\nf = globals()['d' + 'ot']\n", "imports * from 'numpy'"),
        ("f = globals()['d' + 'ot']\n", "uses 'globals'"),
        ("f = locals()['d' + 'ot']\n", "uses 'locals'"),
        ("import numpy as np\ng = getattr\nf = g(np, 'd' + 'ot')\n", "without calling it"),
        ("import numpy.linalg\n", "finished operator (linalg)"),
        ("from numpy.linalg import norm\n", "finished operator (linalg)"),
        ("import tiles, numpy.linalg\n", "finished operator (linalg)"),
    ],
)
def test_each_offence_is_named(tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, source), Policy())
    assert fault.value.reason is Reason.POLICY
    assert says in fault.value.detail
    assert "kernel.py:" in fault.value.detail


OWN_WORDS = """
from tiles import outer, dot
from .tiles import matmul
import tiles

def run(a, b, c):
    inner = b[0]
    for outer in a:
        inner = inner + outer
    dot(inner, c)
"""


def test_own_names_may_be_words_that_libraries_use(tmp_path: Path) -> None:
    check_policy(_write(tmp_path, OWN_WORDS), Policy())


def test_allowed_library_calls_pass(tmp_path: Path) -> None:
    folder = _write(tmp_path, "def run(a, b, c):\n    c[:] = a @ b\n")
    check_policy(folder, Policy(library_calls=True))


def test_a_file_that_does_not_parse_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, "def run(:\n"), Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD


@pytest.mark.parametrize(
    "source",
    [
        "-" * 100_000 + "1",
        "lambda:" * 100_000 + "1",
        "not " * 60_000 + "1",
        "a" + ".b" * 100_000,
        "1" + "+1" * 100_000,
        "if 1: pass\n" + "elif 1: pass\n" * 50_000,
        "(" * 1000,
        "x = " + "9" * 5000,
        "a\0b",
        "# coding: no-such-encoding\n",
        "#" * (LARGEST + 1),
    ],
    ids=lambda source: source[:8],
)
def test_source_that_no_parser_can_bear_does_not_load(tmp_path: Path, source: str) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, source), Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD
    assert fault.value.detail.startswith("kernel.py: ")
    assert len(fault.value.detail) < 500


def test_only_plain_files_are_source(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "broken.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    check_policy(_write(tmp_path, HONEST), Policy())


def test_a_file_that_cannot_be_read_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").symlink_to("/proc/self/mem")
    with pytest.raises(CandidateFault, match=r"kernel\.py: OSError") as fault:
        check_policy(tmp_path, Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD


@given(source=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_source_gets_anything_but_a_pass_or_a_fault(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "kernel.py").write_bytes(source)
    with contextlib.suppress(CandidateFault):
        check_policy(tmp_path, Policy())


def test_workspace_tests_may_use_what_kernels_may_not(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_kernel.py").write_text("import pytest\nx = a @ b\n")
    check_policy(_write(tmp_path, HONEST), Policy())
