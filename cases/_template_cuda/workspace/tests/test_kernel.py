"""A quick look at the kernel without the lab around it: a few sizes against torch in float64.

On a GPU it is compiled; without one, TRITON_INTERPRET=1 walks through it on the CPU.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

WORKSPACE = Path(__file__).parents[1]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, which reads it then


@pytest.mark.parametrize("shape", [(1, 1), (3, 1000), (5, 4097)])
def test_rows_are_summed(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKSPACE))
    for name in ("kernel", "knobs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    run = importlib.import_module("kernel").run

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    s = torch.full(shape[:1], float("nan"), device=DEVICE)
    run(x, s)
    off = (s.double() - x.double().sum(1)).abs() / x.double().abs().sum(1)
    assert off.max() < 1e-6
