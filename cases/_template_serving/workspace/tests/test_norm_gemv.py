"""Each implementation of `norm_gemv`, held to float64."""

from __future__ import annotations

import pytest
import torch
from ops.c.norm_gemv import norm_gemv_c
from ops.norm_gemv import norm_gemv_torch
from ops.numba.norm_gemv import norm_gemv_numba

EPS = 1e-5
ALL = pytest.mark.parametrize("norm_gemv", [norm_gemv_torch, norm_gemv_c, norm_gemv_numba])


@ALL
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 7), (256, 128), (33, 65), (1000, 128), (5, 4099)])
def test_it_is_right(norm_gemv, n, k):
    drawn = torch.Generator().manual_seed(n * 10_000 + k)
    x, norm, weight = (torch.randn(shape, generator=drawn) for shape in ((k,), (k,), (n, k)))
    exact = x.double()
    exact = weight.double() @ (exact * (exact.square().mean() + EPS).rsqrt() * norm.double())
    scale = weight.double().abs() @ (x * norm).double().abs() + 1e-6
    assert ((norm_gemv(x, norm, EPS, weight) - exact).abs() / scale).max() < 1e-5


@ALL
def test_zeros_have_a_norm_of_their_own(norm_gemv):
    found = norm_gemv(torch.zeros(64), torch.ones(64), EPS, torch.ones(3, 64))
    assert found.tolist() == [0, 0, 0]
