"""The operators of torch beside generated kernels, on a CPU, where a library with the same C interface stands in."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hillclimb.harness.gemm.families.point import RowOperand
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.folder import sha256_of
from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, KernelCatalog, Library, write_catalog
from hillclimb.harness.gemm.generator.source import render_template
from hillclimb.harness.gemm.generator.torch_binding import TORCH_OPS, write_torch_ops
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points
from hillclimb.harness.gemm.shape import Dtype


def of_collectives(generator: str, dtype: Dtype, rows: RowOperand) -> AnyPoint:
    return next(one for one in chosen_points(generator, "hopper", dtype) if getattr(one, "rows", "") == rows)


TOKENS, FEATURES = (of_collectives("simple_gemm", "int8", rows) for rows in ("tokens", "features"))
SCALED = of_collectives("scaled_mm", "scaled_int8", "features")
GROUPED = chosen_points("grouped_gemm", "hopper", "bf16")[0].model_copy(update={"dtype": "scaled_int8"})
OWN = chosen_points("warpgroup_gemm", "hopper", "bf16")[0]
STREAM_K = next(one for one in chosen_points("simple_gemm", "hopper", "int8") if "stream_k" in one.words)
FLEXIBLE = chosen_points("warpgroup_gemm", "flexible", "bf16")[0].model_copy(update={"blocks": 3})
FAILED = OWN.model_copy(update={"splits": 2})
LONGER = OWN.model_copy(update={"blocks": 12})
"""Whose name begins as that of the one before it, if its last letter is left out."""

PRODUCT = """
extern "C" int NAME(GemmAction action, GemmRequest* of) {
  static int prepared = 0;
  static void* workspace = nullptr;
  if (action == GEMM_WORKSPACE) return of->workspace_bytes = of->rows > 8 ? 64 : 0, of->inner == 64 ? 3 : 0;
  if (action == GEMM_PREPARE) return ++prepared, workspace = of->workspace, 0;
  if (!prepared || of->stream || (of->workspace_bytes && workspace != of->workspace)) return 5;
  for (int row = 0; row < of->rows; ++row)
    for (int column = 0; column < of->columns; ++column) {
      int token = of->is_transposed ? column : row, group = 0;
      while (of->group_ends && group < of->groups && token >= of->group_ends[group]) ++group;
      if (group == of->groups) continue;
      int a_row = row + of->is_transposed * group * of->rows, b_row = column + !of->is_transposed * group * of->columns;
      int sum = 0, at = of->is_transposed ? column * of->rows + row : row * of->columns + column;
      auto a = (signed char const*)of->a + a_row * of->inner, b = (signed char const*)of->b + b_row * of->inner;
      for (int inner = 0; inner < of->inner; ++inner) sum += a[inner] * b[inner];
      if (!of->row_scales) {
        ((int*)of->result)[at] = sum;
        continue;
      }
      float scaled = sum * of->row_scales[a_row] * of->column_scales[b_row];
      unsigned bits;
      __builtin_memcpy(&bits, &scaled, 4);
      ((unsigned short*)of->result)[at] = bits >> 16;
    }
  return 0;
}
"""
ECHO = """
extern "C" int NAME(GemmAction action, GemmRequest* of) {
  if (action != GEMM_RUN) return 0;
  int const told[] = {of->raster, of->swizzle, of->splits, of->dependent, of->is_transposed, of->cluster_rows,
                      of->cluster_columns, of->steps, of->promotion, of->row_cache, of->column_cache, BLOCKS,
                      of->rows, of->columns, of->inner, of->persistent};
  for (int at = 0; at < 16; ++at) ((short*)of->result)[at] = told[at];
  return 0;
}
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Loaded from a folder with kernels of two types, as whoever uses it does."""
    root = tmp_path_factory.mktemp("kernels")
    points = (TOKENS, FEATURES, SCALED, STREAM_K, GROUPED, OWN, LONGER, FLEXIBLE)
    header = render_template("gemm.h.jinja", {"kernels": [{"name": one.name} for one in points]})
    bodies = [PRODUCT.replace("NAME", one.name) for one in points[:5]]
    bodies += [ECHO.replace("NAME", one.name).replace("BLOCKS", str(one.blocks)) for one in points[5:]]  # type: ignore[union-attr]
    source = root / "kernels.cpp"
    source.write_text("\n".join(["#include <cstddef>", "using cudaStream_t = void*;", header, *bodies]))
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", root / "all.so", source], check=True, timeout=120)
    for folder, kernels in (
        ("collectives", points[:4]),
        ("grouped", points[4:5]),
        ("own", (OWN, LONGER, FLEXIBLE, FAILED)),
    ):
        found = [GeneratedKernel(point=one, outcome="built", library="libraries/all.so") for one in kernels]
        found[-1] = found[-1].model_copy(update={"outcome": "failed"}) if kernels[-1] is FAILED else found[-1]
        library = Library("all.so", root / "all.so", sha256_of(root / "all.so"))
        catalog = KernelCatalog(schema=3, architecture="90a", software={}, kernels=tuple(found))
        write_catalog(root / folder, catalog, [library])
    write_torch_ops(root)
    loaded = load(root / TORCH_OPS)
    loaded._gpu = lambda x: (nullcontext(), None, 1)  # type: ignore[attr-defined]  # that of the stand-in
    yield loaded
    loaded.library._destroy()


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_ops", path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def operator(point: AnyPoint) -> Any:
    return getattr(torch.ops.hillclimb_gemm, point.name).default


def whole(*sizes: int) -> torch.Tensor:
    return torch.randint(-100, 100, sizes, dtype=torch.int8)


def whole_ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes, dtype=torch.int8)


@pytest.mark.parametrize("point", [TOKENS, FEATURES], ids=["tokens", "features"])
def test_a_product_is_row_major_whosever_rows_the_kernel_has(ops: ModuleType, point: AnyPoint) -> None:
    for m, n, k in ((1, 4, 16), (5, 12, 48), (33, 8, 32)):
        x, w = whole(m, k), whole(n, k)
        out = operator(point)(x, w)
        assert out.dtype == torch.int32 and torch.equal(out, x.int() @ w.int().t())
        assert torch.equal(ops.gemm(f"generated:{point.name}_raster0_splits1", x, w), out)


def test_scales_are_of_tokens_and_of_rows_of_weights(ops: ModuleType) -> None:
    x, w = torch.ones(3, 16, dtype=torch.int8), torch.ones(8, 16, dtype=torch.int8)
    x_scales, w_scales = 2.0 ** torch.arange(3), 2.0 ** -torch.arange(8)
    out = operator(SCALED)(x, w, x_scales, w_scales)
    assert torch.equal(out, (16 * x_scales[:, None] * w_scales).bfloat16())


@pytest.mark.parametrize(
    "option",
    [
        RunOption(raster=1),
        RunOption(rows="features", raster=2, cluster=(2, 4), swizzle=4, steps=3, is_dependent=True),
        RunOption(raster=2, caches=(1, 2), promotion=1),
        RunOption(raster=1, caches=(2, 0), is_dependent=True),
    ],
)
@pytest.mark.parametrize("point", [OWN, LONGER, FLEXIBLE], ids=["own", "longer", "flexible"])
def test_a_way_is_run_as_it_is_named(ops: ModuleType, option: RunOption, point: Any) -> None:
    x, w = torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16()
    told = ops.gemm(way_name(point, option), x, w).view(torch.int16).flatten()[:15].tolist()
    is_transposed = option.rows == "features"
    sizes = [16, 4, 8] if is_transposed else [4, 16, 8]
    expected = [option.raster, option.swizzle, option.splits, option.is_dependent, is_transposed]
    expected += [*option.cluster, option.steps, option.promotion, *option.caches, point.blocks, *sizes]
    assert told == expected


@pytest.mark.parametrize("option", [RunOption(splits=4), RunOption(raster=2, is_persistent=True)])
def test_a_flexible_kernel_is_told_how_it_shares_its_work(ops: ModuleType, option: RunOption) -> None:
    x, w = torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16()
    told = ops.gemm(way_name(FLEXIBLE, option), x, w).view(torch.int16).flatten()[:16].tolist()
    assert (told[2], told[15]) == (option.splits, option.is_persistent)


@pytest.mark.parametrize("words", ["raster1_splits2", "raster1_persistent"])
def test_only_a_flexible_kernel_is_told_how_it_shares_its_work(ops: ModuleType, words: str) -> None:
    x, w = torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16()
    with pytest.raises(ValueError, match="is not flexible; leave splits and persistent out"):
        ops.gemm(f"{OWN.name}_tokens_1x1_{words}", x, w)
    with pytest.raises(ValueError, match="is not flexible"):
        ops.gemm(f"{TOKENS.name}_raster1_persistent", whole(4, 16), whole(16, 16))


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("rows", [(3, 0, 2), (0, 0, 0), (1, 1, 1)])
def test_each_group_has_weights_and_scales_of_its_own(
    ops: ModuleType, rows: tuple[int, ...], features: bool
) -> None:
    x, w = whole(5, 32) % 3 - 1, whole(3, 8, 32) % 3 - 1  # whose sums bfloat16 has
    x_scales, w_scales = 2.0 ** torch.randint(-3, 3, (5,)), 2.0 ** torch.randint(-3, 3, (3, 8))
    ends = torch.tensor(rows).cumsum(0).int()
    way = way_name(GROUPED, RunOption(raster=1, rows="features" if features else "tokens"))
    out = ops.gemm(way, x, w, x_scales, w_scales, ends)
    assert torch.equal(
        operator(GROUPED)(x, w, x_scales, w_scales, ends, features=features)[: sum(rows)], out[: sum(rows)]
    )
    begin = 0
    for group, end in enumerate(ends.tolist()):
        expected = x[begin:end].float() @ w[group].float().t() * x_scales[begin:end, None] * w_scales[group]
        assert torch.equal(out[begin:end], expected.bfloat16())
        begin = end


@pytest.mark.parametrize(
    ("operands", "told"),
    [
        ({"w": whole_ones(8, 32)}, "takes torch.int8 of three sizes, contiguous"),
        ({"group_ends": None}, "takes group_ends"),
        (
            {"group_ends": torch.tensor([1, 2, 4])},
            "group_ends is torch.int64 (3,); it has to be int32 (3,)",
        ),
        ({"group_ends": torch.tensor([4]).int()}, "group_ends is torch.int32 (1,)"),
        ({"group_ends": torch.tensor([1, 0, 2, 0, 4, 0]).int()[::2]}, "group_ends has to be contiguous"),
        ({"w_scales": torch.ones(8)}, "w_scales is torch.float32 (8,); it has to be float32 (3, 8)"),
    ],
)
def test_groups_that_are_none_are_told(ops: ModuleType, operands: dict[str, Any], told: str) -> None:
    right = {
        "w": whole_ones(3, 8, 32),
        "x_scales": torch.ones(4),
        "w_scales": torch.ones(3, 8),
        "group_ends": torch.tensor([1, 2, 4]).int(),
    }
    operator(GROUPED)(whole_ones(4, 32), **right)
    with pytest.raises(ValueError, match=re.escape(told)):
        operator(GROUPED)(whole_ones(4, 32), **{**right, **operands})
    with pytest.raises(ValueError, match="takes no group_ends"):
        operator(TOKENS)(whole_ones(4, 32), whole_ones(8, 32), group_ends=right["group_ends"])


def test_operators_are_what_torch_asks_of_one(ops: ModuleType) -> None:
    torch.library.opcheck(operator(TOKENS), (whole(4, 32), whole(8, 32)))
    scales = (torch.rand(4), torch.rand(8))
    torch.library.opcheck(operator(SCALED), (whole(4, 32), whole(8, 32), *scales))
    groups = (torch.rand(4), torch.rand(3, 8), torch.tensor([1, 1, 4]).int())
    torch.library.opcheck(operator(GROUPED), (whole(4, 32), whole(3, 8, 32), *groups))
    with FakeTensorMode():
        out = operator(FEATURES)(whole(4, 32), whole(8, 32))
    assert out.shape == (4, 8) and out.dtype == torch.int32


@pytest.mark.parametrize(
    ("operands", "told"),
    [
        ((torch.zeros(4, 32), whole(8, 32)), "x is torch.float32 (4, 32)"),
        ((whole(4, 32), whole(8)), "w is torch.int8 (8,)"),
        ((whole(4, 32), whole(32, 8).t()), "w is torch.int8 (8, 32)"),
        ((whole(4, 32), whole(8, 48)), "x (4, 32) on cpu and w (8, 48) on cpu do not fit"),
        ((whole(4, 24), whole(8, 24)), "rows of k = 24 or n = 8 are no multiple of 16 bytes"),
        ((whole(4, 32), whole(7, 32)), "rows of k = 32 or n = 7"),
        ((whole(4, 32), whole(8, 32), torch.ones(4), torch.ones(8)), "takes no x_scales"),
        ((whole(4 * 32 + 1)[1:].view(4, 32), whole(8, 32)), "begin at multiples of 16 bytes"),
    ],
)
def test_what_a_kernel_cannot_take_is_told(
    ops: ModuleType, operands: tuple[torch.Tensor, ...], told: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        operator(TOKENS)(*operands)


@pytest.mark.parametrize(
    ("scales", "told"),
    [
        ((), "takes x_scales"),
        ((torch.ones(4),), "takes w_scales"),
        ((torch.ones(8), torch.ones(8)), "x_scales is torch.float32 (8,); it has to be float32 (4,)"),
        ((torch.ones(4), torch.ones(8).double()), "w_scales is torch.float64 (8,)"),
        ((torch.ones(4), torch.ones(16)[::2]), "w_scales has to be contiguous"),
    ],
)
def test_scales_that_are_none_are_told(ops: ModuleType, scales: tuple[torch.Tensor, ...], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        operator(SCALED)(whole(4, 32), whole(8, 32), *scales)


def test_what_a_kernel_refuses_and_what_is_none_is_told(ops: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="refuses these sizes, or this way to run it: status 3"):
        operator(TOKENS)(whole(4, 64), whole(8, 64))
    with pytest.raises(ValueError, match="has tokens on its rows; leave features out"):
        operator(TOKENS)(whole(4, 32), whole(8, 32), features=True)
    names = ("another_raster1", TOKENS.name, f"{TOKENS.name}_raster1_slow", f"{OWN.name}_raster1")
    for name in (*names, f"{TOKENS.name}_features_1x2_raster0"):
        with pytest.raises(ValueError, match="has no kernel"):
            ops.gemm(name, whole(4, 32), whole(8, 32))
    assert FAILED.name not in ops.KERNELS


def test_empty_operands_give_what_torch_gives(ops: ModuleType) -> None:
    assert operator(TOKENS)(whole(0, 32), whole(8, 32)).shape == (0, 8)
    assert torch.equal(operator(TOKENS)(whole(4, 0), whole(8, 0)), torch.zeros(4, 8, dtype=torch.int32))


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ({"swizzle": 0}, "swizzle is 0; it goes from 1"),
        ({"cluster_rows": -1}, "cluster_rows is -1; it goes from 1"),
        ({"raster": 3}, "raster is 3; it goes from 0 to 2"),
        ({"row_cache": 7}, "row_cache is 7; it goes from 0 to 2"),
        ({"promotion": 2}, "promotion is 2; it goes from 0 to 1"),
        ({"steps": -3}, "steps is -3; it goes from 0"),
        ({"splits": 1 << 32}, "splits is 4294967296; it goes from 1"),
    ],
)
def test_a_way_that_is_none_is_told(ops: ModuleType, way: dict[str, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        operator(TOKENS)(whole(4, 32), whole(8, 32), **way)


def test_only_some_kernels_may_begin_early(ops: ModuleType) -> None:
    x, w = whole(4, 32), whole(8, 32)
    assert torch.equal(operator(TOKENS)(x, w, dependent=True), operator(STREAM_K)(x, w))
    with pytest.raises(ValueError, match="cannot begin before the kernel before it has ended"):
        operator(STREAM_K)(x, w, dependent=True)


def test_operands_of_a_cpu_are_refused(ops: ModuleType, tmp_path: Path) -> None:
    module = (Path(ops.__file__ or "").read_text()).replace("hillclimb_gemm", "hillclimb_gemm_of_a_gpu")
    (tmp_path / TORCH_OPS).write_text(module)
    loaded = load(tmp_path / TORCH_OPS)
    with pytest.raises(ValueError, match="x is on cpu; kernels run on cuda"):
        getattr(torch.ops.hillclimb_gemm_of_a_gpu, TOKENS.name)(whole(4, 32), whole(8, 32))
    loaded.library._destroy()


def test_a_derivative_is_refused(ops: ModuleType) -> None:
    x, w = torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16().requires_grad_()
    out = operator(OWN)(x, w)
    with pytest.raises(RuntimeError, match=f"{OWN.name} has no derivative"):
        out.sum().backward()
    with torch.no_grad():
        assert not operator(OWN)(x, w).requires_grad
