"""A quick look at the kernel without the lab around it: a few sizes against NumPy in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

WORKSPACE = Path(__file__).parents[1]


@pytest.mark.parametrize("shape", [(1, 1), (3, 1000), (65, 8193)])
def test_rows_are_summed(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKSPACE))
    for name in ("kernel", "knobs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from kernel import run

    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    s = np.full(shape[0], np.nan, np.float32)
    run(x, s)
    np.testing.assert_allclose(s, x.sum(axis=1, dtype=np.float64), atol=1e-6 * np.abs(x).sum(axis=1).max())
