"""norm_gemv in every language, against float64. What needs a GPU is skipped where there is none."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ops.arguments import norm_gemv_output
from ops.norm_gemv import norm_gemv_torch

WORKSPACE = Path(__file__).parents[1]
LANGUAGES = ("triton", "cuda", "ptx", "cute")
EPS = 1e-5

SMALL = [(1, 1), (1, 2), (3, 5), (5, 7), (4, 8), (7, 24), (33, 1000), (17, 1023), (9, 1026), (65, 2047)]
"""n and k: below a row's step, odd, even and no multiple of 8, and n beside multiples of the rows."""

LARGE = [(257, 2048), (130, 3072), (5, 16384), (3, 16385), (66, 4104), (3072, 2048), (4096, 4096)]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"


def problem(n, k, device, seed=0, offset=0):
    """(x, norm, weight), drawn; the weight begins `offset` elements after an aligned address."""
    generator = torch.Generator().manual_seed(1000 * n + k + seed)
    x, norm = torch.randn(k, generator=generator) * 3, torch.rand(k, generator=generator) + 0.5
    numbers = torch.zeros(n * k + offset)
    numbers[offset:] = torch.randn(n * k, generator=generator) * k**-0.5
    x, norm, numbers = (tensor.to(torch.bfloat16).to(device) for tensor in (x, norm, numbers))
    return x, norm, numbers[offset:].view(n, k)


def assert_right(y, x, norm, weight, rounding=2**-8):
    """Half a unit of bfloat16's last place, which has eight bits, and float32's rounding of sums."""
    x64, norm64, weight64 = (tensor.double().cpu() for tensor in (x.flatten(), norm, weight))
    normed = x64 * torch.rsqrt((x64 * x64).mean() + EPS) * norm64
    expected = weight64 @ normed
    allowed = 1.01 * rounding * expected.abs() + 2e-6 * (weight64.abs() @ normed.abs()) + 2**-126
    error = (y.double().cpu().flatten() - expected).abs()
    assert bool((error <= allowed).all()), (error / allowed).max()


def implementation(language):
    if language == "cute":
        pytest.importorskip("cutlass", reason="CuTe DSL is not installed")
    return importlib.import_module(f"ops.{language}.norm_gemv").norm_gemv


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=WORKSPACE,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@needs_gpu
@pytest.mark.parametrize(("n", "k"), SMALL + LARGE)
@pytest.mark.parametrize("language", LANGUAGES)
def test_is_right_and_writes_nothing_else(language, n, k):
    x, norm, weight = problem(n, k, "cuda")
    memory = torch.full((n + 64,), float("nan"), dtype=torch.bfloat16, device="cuda")
    result = implementation(language)(x, norm, EPS, weight, out=memory[32 : n + 32])
    assert_right(result, x, norm, weight)
    assert bool(memory[:32].isnan().all()) and bool(memory[n + 32 :].isnan().all())


@needs_gpu
@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize("language", LANGUAGES)
def test_is_right_at_any_address(language, offset):
    x, norm, weight = problem(37, 2048, "cuda", offset=offset)
    assert_right(implementation(language)(x, norm, EPS, weight), x, norm, weight)


@needs_gpu
@pytest.mark.parametrize("language", LANGUAGES)
def test_is_right_for_extreme_inputs(language):
    for scale in (0.0, 1e-30, 1e-4, 1e15):
        x, norm, weight = problem(64, 2048, "cuda")
        x = x * scale
        assert_right(implementation(language)(x, norm, EPS, weight), x, norm, weight)


@needs_gpu
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_batch_of_one_keeps_its_dimension(language):
    x, norm, weight = problem(100, 256, "cuda")
    assert implementation(language)(x[None], norm, EPS, weight).shape == (1, 100)
    assert implementation(language)(x, norm, EPS, weight).shape == (100,)


@needs_gpu
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_captured_call_reads_what_is_there_when_it_is_replayed(language):
    call = implementation(language)
    x, norm, weight = problem(300, 2048, "cuda")
    call(x, norm, EPS, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call(x, norm, EPS, weight)
    for seed in (1, 2):
        others = problem(300, 2048, "cuda", seed)
        for tensor, other in zip((x, norm, weight), others, strict=True):
            tensor.copy_(other)
        graph.replay()
        assert_right(y, *others)


@pytest.mark.skipif(not is_interpreted, reason="run by test_triton_is_right_without_a_gpu")
@pytest.mark.parametrize(("n", "k"), [*SMALL, (5, 2048), (6, 5000)])
def test_triton_interpreted(n, k):
    """Triton's interpreter cuts bfloat16 off instead of rounding it, which costs a whole unit."""
    x, norm, weight = problem(n, k, "cpu")
    assert_right(implementation("triton")(x, norm, EPS, weight), x, norm, weight, rounding=2**-7)


@pytest.mark.skipif(is_interpreted, reason="is what runs these tests")
def test_triton_is_right_without_a_gpu():
    only = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_triton_interpreted", __file__)
    done = python(*only, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.skipif(is_interpreted, reason="compiles")
def test_every_language_that_is_installed_compiles_for_sm_90():
    done = python("-m", "bench.build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"norm_gemv    {language}" in done.stdout for language in LANGUAGES)


@pytest.mark.skipif(is_interpreted, reason="imports what is not interpreted")
@pytest.mark.parametrize("choice", [*LANGUAGES, "torch"])
def test_the_knob_chooses(choice):
    told = "import ops.norm_gemv as family; print(family.norm_gemv.__module__)"
    done = python("-c", told, OP_NORM_GEMV=choice)
    if choice == "cute" and "CuTe DSL is not installed" in done.stderr:
        return
    assert done.stdout.strip() == f"ops.{choice}.norm_gemv".replace("ops.torch.", "ops."), done.stderr


def test_torchs_own_is_near():
    x, norm, weight = problem(40, 512, "cpu")
    expected = weight.double() @ (x.double() * torch.rsqrt((x.double() ** 2).mean() + EPS) * norm.double())
    torch.testing.assert_close(
        norm_gemv_torch(x[None], norm, EPS, weight)[0].double(), expected, rtol=0.03, atol=0.03
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"x": torch.zeros(2, 8)}, "one vector"),
        ({"x": torch.zeros(9)}, "one vector"),
        ({"norm": torch.zeros(9)}, "as long as a row"),
        ({"weight": torch.zeros(8)}, "a matrix"),
        ({"weight": torch.zeros(0, 8)}, "not empty"),
        ({"weight": torch.zeros(8, 3).T}, "contiguous"),
        ({"out": torch.zeros(4)}, r"give \[3\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, told):
    arguments = {
        "x": torch.zeros(8),
        "norm": torch.zeros(8),
        "weight": torch.zeros(3, 8),
        "out": None,
    } | change
    arguments = {
        name: tensor.to(torch.bfloat16) if tensor is not None else None for name, tensor in arguments.items()
    }
    with pytest.raises(ValueError, match=told):
        norm_gemv_output(**arguments)


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match=r"norm is torch\.float32"):
        norm_gemv_output(
            torch.zeros(8, dtype=torch.bfloat16),
            torch.zeros(8),
            torch.zeros(3, 8, dtype=torch.bfloat16),
            None,
        )
