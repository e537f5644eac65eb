"""Which tiles of QuACK are timed, how it is called, and what is told where it is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.bench import bench
from hillclimb.harness.gemm.bench.messages import WorkerAsk
from hillclimb.harness.gemm.definitions import FILE, read_definitions
from hillclimb.harness.gemm.generator.catalog import CATALOG
from hillclimb.harness.gemm.providers import worker
from hillclimb.harness.gemm.providers.cute_dsl import (
    WAYS,
    WAYS_OF_TILE,
    CuteDsl,
    CuteTile,
    likeliest,
    multiply,
    possible,
)
from hillclimb.harness.gemm.providers.provider import Operands, UnsupportedError
from hillclimb.harness.gemm.shape import Dtype, GemmShape

SHAPES = [shape for shape in read_definitions(FILE).grid_shapes("bf16") if shape.groups == 1]


def product(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Operands:
    """Of small whole numbers: their sums are the same in whatever order they are taken."""

    def whole(*sizes: int) -> torch.Tensor:
        return torch.randint(-8, 9, sizes).to(dtype)

    return Operands(whole(m, k), whole(n, k), torch.full((m, n), torch.nan, dtype=torch.bfloat16))


def test_every_shape_of_the_grid_has_tiles() -> None:
    for shape in SHAPES:
        tiles = likeliest(shape)
        assert len({str(tile) for tile in tiles}) == WAYS and all(tile.is_possible for tile in tiles)
        sizes = Counter((tile.rows, tile.columns, tile.has_features_on_rows) for tile in tiles)
        assert len(sizes) >= WAYS / WAYS_OF_TILE
        for tile in tiles:
            if tile.has_features_on_rows:
                assert tile.columns < max(2 * shape.m, 17)
            else:
                assert tile.rows < max(2 * shape.m, 65)


def test_k_is_split_where_blocks_are_few_alone() -> None:
    few, many = (
        {tile.splits for tile in likeliest(GemmShape("", m, 1280, 8192, "bf16"))} for m in (128, 8192)
    )
    assert 1 not in few and many == {1}


def test_few_tokens_are_on_the_columns_of_whole_tiles() -> None:
    first = likeliest(GemmShape("", 1, 6144, 4096, "bf16"))[0]
    assert first.has_features_on_rows and (first.rows, first.columns) == (64, 16)


def test_sums_of_a_tile_fit_into_registers() -> None:
    """240 registers a thread, of which the rest of a kernel needs 32."""
    for tile in possible():
        warpgroups = 1 if tile.is_pingpong else {64: 1, 128: 2, 192: 3, 256: 2}[tile.rows]
        assert tile.rows * tile.columns / (128 * warpgroups) <= 208


@pytest.mark.parametrize("has_features_on_rows", [True, False])
@pytest.mark.parametrize("splits", [1, 2])
def test_operands_are_in_their_places(has_features_on_rows: bool, splits: int) -> None:
    """What stands in for QuACK does what its docstring says of the operands."""
    asked: dict[str, Any] = {}

    def gemm(a: Any, b: Any, d: Any, c: Any, count: Any, *sizes: int, **rest: Any) -> None:
        assert c is None and count is None and a.dim() == b.dim() == d.dim() == (2 if splits == 1 else 3)
        d.copy_(a.float() @ b.float().mT)
        asked.update(rest, sizes=sizes)

    to = product(5, 24, 32)
    multiply(gemm, to, CuteTile(128, 64, has_features_on_rows, splits, (2, 1), True))
    assert torch.equal(to.out, (to.x.float() @ to.w.float().t()).bfloat16())
    assert asked == {"sizes": (128, 64, 2, 1), "pingpong": True, "split_k": splits}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> CuteDsl:
    """As where QuACK is installed."""
    monkeypatch.setitem(sys.modules, "quack", ModuleType("quack"))
    monkeypatch.setitem(sys.modules, "quack.gemm", SimpleNamespace(gemm=None))  # type: ignore[misc]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    return CuteDsl()


@pytest.mark.parametrize(
    ("dtype", "groups", "n", "told"),
    [
        ("int8", 1, 64, "has bf16, f16, not int8"),
        ("fp8", 1, 64, "not fp8"),
        ("scaled_fp8", 1, 64, "not scaled_fp8"),
        ("bf16", 4, 64, "none of groups"),
        ("bf16", 1, 60, "not n = 60, k = 32"),
    ],
)
def test_what_it_has_not_is_told(provider: CuteDsl, dtype: Dtype, groups: int, n: int, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        provider.kernels(GemmShape("", 5, n, 32, dtype, groups), product(5, n, 32))
    assert provider.kernels(GemmShape("", 5, 64, 32, "bf16"), product(5, 64, 32))


def test_another_card_is_told(provider: CuteDsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    with pytest.raises(UnsupportedError, match="those of Hopper"):
        provider.kernels(GemmShape("", 5, 64, 32, "bf16"), product(5, 64, 32))


def test_without_quack_its_process_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "quack.py").write_text("raise ImportError('no package here')\n")
    done = subprocess.run(
        [sys.executable, "-m", bench.WORKER, "cute_dsl"],
        input=WorkerAsk(action="start").model_dump_json() + "\n",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["is_broken"] and answer["fault"] == "unsupported", done.stderr
    assert "(no package here): pip install 'quack-kernels[cu13]', or leave" in answer["detail"]


def test_a_bench_takes_it_where_quack_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = list(sys.path)
    monkeypatch.setattr(sys, "path", [])
    assert bench.providers_there(tmp_path) == ["cublas", "cublaslt", "triton"]
    (tmp_path / "quack_kernels-0.6.5.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *path])
    assert bench.providers_there(tmp_path) == ["cublas", "cublaslt", "triton", "cute_dsl"]
    (tmp_path / CATALOG).touch()
    assert bench.providers_there(tmp_path) == list(bench.PROVIDERS) == list(worker.PROVIDERS)


COMPILE = """
import random
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
import quack.gemm
from hillclimb.harness.gemm.providers.cute_dsl import multiply, possible
from hillclimb.harness.gemm.providers.provider import Operands

quack.gemm.run_gemm_plan = lambda *operands, **rest: None
quack.gemm.get_max_active_clusters = lambda *sizes, **rest: 132
tiles = list(possible())
with FakeTensorMode():
    for dtype in (torch.bfloat16, torch.float16):
        x, w = (torch.empty(rows, 4096, dtype=dtype, device="cuda") for rows in (96, 6144))
        for tile in random.Random(0).sample(tiles, 8):
            multiply(quack.gemm.gemm, Operands(x, w, torch.empty(96, 6144, dtype=dtype, device="cuda")), tile)
print("compiled")
"""


@pytest.mark.slow(30)
@pytest.mark.skipif(find_spec("quack") is None, reason="quack-kernels is not installed")
def test_hopper_compiles_the_tiles(tmp_path: Path) -> None:
    hopper = {"QUACK_ARCH": "90", "CUTE_DSL_ARCH": "sm_90a", "QUACK_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=os.environ | hopper,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("compiled\n"), done.stderr[-3000:]


def test_an_absent_package_is_a_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quack", None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be imported"):
        CuteDsl()
