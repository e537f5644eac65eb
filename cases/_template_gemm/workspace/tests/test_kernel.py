"""A quick look at the kernel without the lab around it: a few sizes against torch in float64, on an H100 or H200."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

WORKSPACE = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.syspath_prepend(str(WORKSPACE))
    for name in ("kernel", "knobs", "launch", "plan"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("kernel").run


@pytest.mark.parametrize(("m", "n", "k"), [(1, 16, 16), (17, 264, 64), (130, 1040, 4096)])
def test_it_is_the_product(run: Callable[..., None], m: int, n: int, k: int) -> None:
    own = {"bf16": torch.bfloat16, "f16": torch.float16}["{{dtype}}"]
    torch.manual_seed(0)
    x, w = (torch.randn(size, k, device="cuda").to(own) for size in (m, n))
    out = torch.full((m, n), float("nan"), dtype=own, device="cuda")
    run(x, w, out)
    expected = x.double() @ w.double().t()
    assert ((out.double() - expected).abs() <= 2**-8 * (expected.abs() + expected.abs().mean())).all()
