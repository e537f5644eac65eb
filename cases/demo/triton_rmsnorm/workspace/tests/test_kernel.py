"""A quick look at the kernel without the lab around it: a few sizes against torch in float64.

On a GPU it is compiled; without one, TRITON_INTERPRET=1 walks through it on the CPU.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

WORKSPACE = Path(__file__).parents[1]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.syspath_prepend(str(WORKSPACE))
    for name in ("kernel", "knobs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("kernel").run


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 1000), (2, 4096)])
@pytest.mark.parametrize(("spread", "offset"), [(1, 0), (1, 50), (1e-3, 0)])
def test_rows_are_normed(
    run: Callable[..., None], shape: tuple[int, int], spread: float, offset: float
) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * spread + offset).to(DEVICE, torch.bfloat16)
    weight = torch.randn(shape[1], device=DEVICE)
    y = torch.full_like(x, float("nan"))
    run(x, weight, y)
    root = (x.double().square().mean(1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(y.double(), x.double() / root * weight, rtol=2**-7, atol=1e-30)
