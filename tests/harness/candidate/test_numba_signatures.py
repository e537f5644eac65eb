"""A signature says types and nothing else, whoever hands it to numba."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import numba, numpy as np
from numba import types
from hillclimb.harness.candidate.wall.numba_signatures import restrict_signatures
restrict_signatures()
"""

PLAIN = [
    "void(float32[:, ::1], int64)",
    "f8(f8, f8)",
    "UniTuple(int64, 2)(float32[:])",
    "Tuple((int64, float64))(Array(float32, 2, 'C'))",
    "void()",
]
EVIL = [
    "print(1) or void()",
    "__import__('os').system('true')",
    "[v for v in (void,)][0]()",
    "void.__class__",
    "ExternalFunction('f', void())",
    "(lambda: void())()",
    "sys",
]


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HEAD + source], capture_output=True, text=True, timeout=100)


def test_types_are_what_numba_makes_of_them() -> None:
    compared = "from numba.core import sigutils\n" + "".join(
        f"assert sigutils._parse_signature_string({text!r}) == eval({text!r}, {{}}, types.__dict__)\n"
        for text in PLAIN
    )
    done = run(compared + "f = numba.njit('f8(f8)')(lambda x: x + 1)\nassert f(1.0) == 2.0\nprint('done')")
    assert done.stdout == "done\n", done.stderr


@pytest.mark.slow(1, but=["ExternalFunction('f', void())", "print(1) or void()"])
@pytest.mark.parametrize("text", EVIL)
def test_anything_else_is_refused(text: str) -> None:
    done = run(f"numba.njit({text!r})(lambda: None)")
    assert "says more than types of numba's" in done.stderr
    assert done.returncode == 1 and done.stdout == ""
