"""bfloat16 under Triton's interpreter against torch, operation by operation; and that a candidate gets it mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

PROGRAM = """
import json, sys
import torch, triton, triton.language as tl
if sys.argv[1] == "mended":
    from hillclimb.harness.candidate.interpreter_fixes import apply_fixes
    apply_fixes()
    apply_fixes()

@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)

@triton.jit
def each(x, y, o, N: tl.constexpr, OP: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    if OP == "add": r = a + b
    elif OP == "subtract a constant": r = a - 1.0
    elif OP == "multiply": r = a * b
    elif OP == "divide": r = a / b
    elif OP == "maximum": r = tl.maximum(a, b)
    elif OP == "where": r = tl.where(a < b, a, b)
    elif OP == "negate": r = -a
    elif OP == "abs": r = tl.abs(a)
    elif OP == "clamp": r = tl.clamp(a, -0.5, 0.5)
    elif OP == "round": r = (a.to(tl.float32) * 1.01).to(tl.bfloat16)
    elif OP == "to integer": r = (a * 8).to(tl.int32).to(tl.bfloat16)
    elif OP == "sum": r = tl.sum(a, 0) + tl.zeros_like(a)
    elif OP == "max": r = tl.max(a, 0) + tl.zeros_like(a)
    elif OP == "argmax": r = tl.argmax(a, 0).to(tl.bfloat16) + tl.zeros_like(a)
    elif OP == "reduce": r = tl.reduce(a, 0, larger) + tl.zeros_like(a)
    elif OP == "cumsum": r = tl.cumsum(a, 0)
    tl.store(o + i, r)

@triton.jit
def dot(x, y, o, M: tl.constexpr):
    i = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(o + i, tl.dot(tl.load(x + i), tl.load(y + i)))

torch.manual_seed(0)
a, b = torch.randn(32).bfloat16(), torch.randn(32).bfloat16()
wide, full = a.float(), torch.ones(32)
wants = {
    "add": a + b, "subtract a constant": a - 1, "multiply": a * b, "divide": wide / b.float(),
    "maximum": torch.maximum(a, b), "where": torch.minimum(a, b), "negate": -a, "abs": a.abs(),
    "clamp": a.clamp(-0.5, 0.5), "round": (wide * 1.01).bfloat16(), "to integer": (a * 8).int(),
    "sum": wide.sum() * full, "max": wide.max() * full, "argmax": a.argmax() * full, "reduce": wide.max() * full,
    "cumsum": wide.cumsum(0),
}
found = {}
for name, want in wants.items():
    o = torch.full_like(a, torch.nan)
    each[(1,)](a, b, o, 32, name)
    found[name] = torch.equal(o, want.bfloat16())
x, y, o = torch.randn(16, 16).bfloat16(), torch.randn(16, 16).bfloat16(), torch.empty(16, 16)
dot[(1,)](x, y, o, 16)
found["dot"] = torch.allclose(o, x.float() @ y.float(), atol=1e-5)
print(json.dumps(found))
"""


def outcome(tmp_path: Path, how: str) -> dict[str, Any]:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), how],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow(12)
def test_bfloat16_is_computed_as_torch_computes_it(tmp_path: Path) -> None:
    found = outcome(tmp_path, "mended")
    assert len(found) == 17
    assert [name for name, agrees in found.items() if not agrees] == []


@pytest.mark.slow(12)
def test_the_mending_is_still_needed(tmp_path: Path) -> None:
    """Fails with a Triton whose interpreter computes bfloat16 itself: then the mending can go."""
    assert not outcome(tmp_path, "as it is")["dot"]
