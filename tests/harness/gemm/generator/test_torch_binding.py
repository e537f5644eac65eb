"""The operators of torch beside generated kernels, on a CPU, where a library with the same C interface stands in."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hillclimb.harness.gemm.families.point import RowOperand
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, KernelCatalog
from hillclimb.harness.gemm.generator.source import render_template
from hillclimb.harness.gemm.generator.torch_binding import torch_ops
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points
from hillclimb.harness.gemm.shape import Dtype


def of_collectives(generator: str, dtype: Dtype, rows: RowOperand) -> AnyPoint:
    return next(one for one in chosen_points(generator, "hopper", dtype) if getattr(one, "rows", "") == rows)


TOKENS, FEATURES = (of_collectives("simple_gemm", "int8", rows) for rows in ("tokens", "features"))
SCALED = of_collectives("scaled_mm", "scaled_int8", "features")
OWN = chosen_points("warpgroup_gemm", "hopper", "bf16")[0]
LONGER = OWN.model_copy(update={"blocks": 12})
"""Whose name begins as that of the one before it, if its last letter is left out."""

PRODUCT = """
extern "C" int NAME(GemmAction action, GemmRequest* of) {
  static int prepared = 0;
  if (action == GEMM_WORKSPACE) return of->workspace_bytes = 64, of->inner == 64 ? 3 : 0;
  if (action == GEMM_PREPARE) return ++prepared, of->workspace ? 0 : 4;
  if (prepared != 1 || of->stream) return 5;
  for (int row = 0; row < of->rows; ++row)
    for (int column = 0; column < of->columns; ++column) {
      int sum = 0, at = of->is_transposed ? column * of->rows + row : row * of->columns + column;
      auto a = (signed char const*)of->a + row * of->inner, b = (signed char const*)of->b + column * of->inner;
      for (int inner = 0; inner < of->inner; ++inner) sum += a[inner] * b[inner];
      if (!of->row_scales) {
        ((int*)of->result)[at] = sum;
        continue;
      }
      float scaled = sum * of->row_scales[row] * of->column_scales[column];
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
                      of->rows, of->columns, of->inner, 0};
  for (int at = 0; at < 16; ++at) ((short*)of->result)[at] = told[at];
  return 0;
}
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Loaded from a folder, as whoever uses it does."""
    folder = tmp_path_factory.mktemp("kernels")
    points = (TOKENS, FEATURES, SCALED, OWN, LONGER)
    header = render_template("gemm.h.jinja", {"kernels": [{"name": one.name} for one in points]})
    bodies = [PRODUCT.replace("NAME", one.name) for one in points[:3]]
    bodies += [ECHO.replace("NAME", one.name).replace("BLOCKS", str(one.blocks)) for one in (OWN, LONGER)]  # type: ignore[union-attr]
    source = folder / "kernels.cpp"
    source.write_text("\n".join(["#include <cstddef>", "using cudaStream_t = void*;", header, *bodies]))
    subprocess.run(
        ["c++", "-O1", "-shared", "-fPIC", "-o", folder / "kernels.so", source], check=True, timeout=120
    )
    kernels = [GeneratedKernel(point=one, outcome="built", library="kernels.so") for one in points]
    kernels.append(GeneratedKernel(point=OWN.model_copy(update={"splits": 2}), outcome="failed"))
    module = folder / "torch_ops.py"
    module.write_text(
        torch_ops(KernelCatalog(schema=2, architecture="90a", software={}, kernels=tuple(kernels)))
    )
    spec = importlib.util.spec_from_file_location("torch_ops", module)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    yield loaded
    loaded.library._destroy()


def operator(point: AnyPoint) -> Any:
    return getattr(torch.ops.hillclimb_gemm, point.name).default


def whole(*sizes: int) -> torch.Tensor:
    return torch.randint(-100, 100, sizes, dtype=torch.int8)


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
@pytest.mark.parametrize("point", [OWN, LONGER], ids=["own", "longer"])
def test_a_way_is_run_as_it_is_named(ops: ModuleType, option: RunOption, point: Any) -> None:
    x, w = torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16()
    told = ops.gemm(way_name(point, option), x, w).view(torch.int16).flatten()[:15].tolist()
    is_transposed = option.rows == "features"
    sizes = [16, 4, 8] if is_transposed else [4, 16, 8]
    expected = [option.raster, option.swizzle, option.splits, option.is_dependent, is_transposed]
    expected += [*option.cluster, option.steps, option.promotion, *option.caches, point.blocks, *sizes]
    assert told == expected


def test_operators_are_what_torch_asks_of_one(ops: ModuleType) -> None:
    torch.library.opcheck(operator(TOKENS), (whole(4, 32), whole(8, 32)))
    scales = (torch.rand(4), torch.rand(8))
    torch.library.opcheck(operator(SCALED), (whole(4, 32), whole(8, 32), *scales))
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
    for name in ("another_raster1", TOKENS.name, f"{TOKENS.name}_raster1_slow"):
        with pytest.raises(ValueError, match="has no kernel"):
            ops.gemm(name, whole(4, 32), whole(8, 32))
    assert operator(TOKENS)(whole(0, 32), whole(8, 32)).shape == (0, 8)
    assert OWN.model_copy(update={"splits": 2}).name not in ops.KERNELS
