"""What of a provider runs without a GPU: the cost model, the Triton kernel in the interpreter, the tables of ids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hillclimb.harness.gemm.definitions import FILE, read_definitions
from hillclimb.harness.gemm.providers import cost, problem
from hillclimb.harness.gemm.providers.cost import cost_seconds
from hillclimb.harness.gemm.providers.cublas import Cublas
from hillclimb.harness.gemm.providers.cublaslt import CublasLt
from hillclimb.harness.gemm.providers.operand_sets import operand_sets, unevenly_spread
from hillclimb.harness.gemm.providers.provider import Operands, UnsupportedError
from hillclimb.harness.gemm.providers.triton_matmul import TritonMatmul
from hillclimb.harness.gemm.shape import GemmShape

H100_MEASURED = [
    (GemmShape("", 512, 4096, 14336, "bf16"), (128, 128), (2, 1), 78.6e-6),
    (GemmShape("", 1024, 4096, 14336, "bf16"), (256, 128), (2, 1), 152.1e-6),
    (GemmShape("", 256, 28672, 4096, "bf16"), (256, 128), (2, 1), 104.5e-6),
    (GemmShape("", 1024, 7168, 18432, "bf16"), (256, 128), (2, 1), 404.2e-6),
]
"""cuBLAS's own kernels there, by their tiles of features by tokens."""


@pytest.mark.parametrize(("shape", "tile", "cluster", "seconds"), H100_MEASURED)
def test_the_model_is_near_what_was_measured(
    shape: GemmShape, tile: tuple[int, int], cluster: tuple[int, int], seconds: float
) -> None:
    assert 0.6 < cost_seconds(shape, tile, cluster) / seconds < 1.2


def test_no_shape_is_below_its_memory() -> None:
    for shape in read_definitions(FILE).grid_shapes("bf16"):
        if shape.groups == 1:
            assert cost_seconds(shape, (128, 128)) >= shape.bytes / cost.DRAM_BYTES


def test_ids_are_those_of_the_header() -> None:
    path = Path(cost.__file__).with_name("cublaslt_ids.json")
    ids = json.loads(path.read_text())
    assert len(ids["tiles"]) == 634 and ids["tiles"]["20"] == [128, 128] and ids["clusters"]["3"] == [2, 1]


def test_a_reference_has_the_scales_of_its_row_and_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "ROWS_AT_ONCE", 21)  # so that it takes several parts
    x, w = torch.randn(5, 4), torch.randn(7, 4)
    x_scales, w_scales = torch.rand(5) + 0.5, torch.rand(7) + 0.5
    plain = problem._reference(Operands(x, w, None))
    scaled = problem._reference(Operands(x, w, None, x_scales, w_scales))
    for row in range(5):
        for column in range(7):
            expected = float(x[row].double() @ w[column].double())
            assert float(plain[row, column]) == pytest.approx(expected, rel=1e-6, abs=1e-7)
            expected *= float(x_scales[row]) * float(w_scales[column])
            assert float(scaled[row, column]) == pytest.approx(expected, rel=1e-6, abs=1e-7)


GROUPED = GemmShape("a", 11, 5, 4, "scaled_fp8", groups=4)


def test_a_reference_of_groups_has_the_weights_and_scales_of_its_group() -> None:
    (one,) = operand_sets(GROUPED, 1, torch.Generator().manual_seed(3))
    ends = one.group_ends.tolist()
    assert one.w.shape == (4, 5, 4) and one.w_scales.shape == (4, 5) and one.group_ends.dtype == torch.int32
    reference, scales = problem._reference(one), torch.empty(11, 5)
    assert reference.shape == (11, 5)
    for row in range(11):
        group = next(at for at, end in enumerate(ends) if row < end)
        for column in range(5):
            expected = float(one.x[row].double() @ one.w[group, column].double())
            scales[row, column] = one.x_scales[row] * one.w_scales[group, column]
            expected *= float(scales[row, column])
            assert float(reference[row, column]) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert torch.allclose(problem._mean_size(one, 2.5 * scales), 2.5 * scales)


@pytest.mark.parametrize(("m", "groups"), [(3, 8), (8, 8), (21, 8), (1, 512), (4096, 3)])
def test_tokens_are_spread_evenly_and_otherwise_in_another_set(m: int, groups: int) -> None:
    shape = GemmShape("a", m, 8, 16, "bf16", groups)
    generator = torch.Generator().manual_seed(0)
    sets = list(operand_sets(shape, 6, generator))
    for one in sets:
        assert sum(one.group_rows) == m == int(one.group_ends[-1]) and len(one.group_rows) == groups
        assert max(one.group_rows) == shape.one_group.m and max(one.group_rows) - min(one.group_rows) <= 1
        assert sum(rows > 0 for rows in one.group_rows) == shape.used_groups
        parts = list(one.each_group())
        assert torch.equal(torch.cat([part.x for part in parts]), one.x)
        assert all(part.out.data_ptr() >= one.out.data_ptr() and not part.group_rows for part in parts)
    assert (len({one.group_rows for one in sets}) > 1) == bool(m % groups)


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize(("m", "groups"), [(20, 3), (5, 9)])
def test_torch_does_groups_one_by_one(m: int, groups: int, is_uneven: bool) -> None:
    shape = GemmShape("a", m, 32, 32, "bf16", groups)
    (even,) = operand_sets(shape, 1, torch.Generator().manual_seed(1))
    one = unevenly_spread(even, torch.Generator().manual_seed(1)) if is_uneven else even
    assert list(Cublas().kernels(shape, one)) == ["grouped_mm", "one_by_one"]
    one.out.fill_(float("nan"))
    Cublas().launch(shape, "one_by_one")(one)
    assert torch.allclose(one.out.float(), problem._reference(one), rtol=0.02, atol=0.05)


@pytest.mark.parametrize(("m", "groups"), [(3, 8), (1, 40), (8, 8)])
def test_sets_of_few_tokens_share_weights_and_meet_others_of_them(m: int, groups: int) -> None:
    sets = list(operand_sets(GemmShape("a", m, 8, 16, "bf16", groups), 7, torch.Generator().manual_seed(0)))
    by_weights: dict[int, list[int]] = {}
    for one in sets:
        met = [group for group, rows in enumerate(one.group_rows) if rows]
        by_weights.setdefault(one.w.data_ptr(), []).extend(met)
    assert all(len(set(met)) == len(met) for met in by_weights.values())
    assert len(by_weights) == -(-7 // (groups // m))
    assert len({one.x.data_ptr() for one in sets}) == len({one.out.data_ptr() for one in sets}) == 7


@pytest.mark.parametrize("groups", [2, 3, 128])
def test_tokens_may_be_spread_unevenly(groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    (even,) = operand_sets(GemmShape("a", 4096, 8, 16, "bf16", groups), 1, generator)
    one = unevenly_spread(even, generator)
    assert sum(one.group_rows) == 4096 == int(one.group_ends[-1]) and len(one.group_rows) == groups
    assert sum(rows == 0 for rows in one.group_rows) == groups // 2
    assert max(one.group_rows) > 2 * 4096 / groups or groups < 4
    assert one.w is even.w and one.x is even.x and one.out.data_ptr() != even.out.data_ptr()


def test_providers_of_single_products_say_so() -> None:
    of = replace(GROUPED, dtype="bf16")
    for provider in (CublasLt, TritonMatmul):
        with pytest.raises(UnsupportedError, match="has single products alone, none of groups"):
            provider.kernels(object(), of, Operands(None, None, None))  # type: ignore[arg-type]
    assert list(Cublas().kernels(replace(of, dtype="f16"), Operands(None, None, None))) == ["one_by_one"]
    with pytest.raises(UnsupportedError, match="takes 17 rows or more, not as few as a group may have"):
        Cublas().kernels(GemmShape("a", 400, 16, 16, "int8", 4), Operands(None, None, None))


def test_what_a_sum_may_be_off_by_is_scaled_with_it() -> None:
    """So that an element is as right or wrong as it is without scales."""
    reference = torch.randn(40, 30)
    x_scales, w_scales = torch.rand(40) + 0.5, torch.rand(30) + 0.5
    scales = x_scales[:, None] * w_scales
    plain = problem._mean_size(Operands(None, None, None), reference)
    scaled = problem._mean_size(Operands(None, None, None, x_scales, w_scales), reference * scales)
    assert torch.allclose(scaled / scales, plain.expand(40, 30), rtol=1e-5)


def test_torch_takes_fp8_in_steps_of_16() -> None:
    nothing = Operands(None, None, None)
    for dtype in ("fp8", "scaled_fp8"):
        assert Cublas().kernels(GemmShape("a", 3, 2112, 720, dtype), nothing)
        for n, k in ((2120, 720), (2112, 728)):
            with pytest.raises(UnsupportedError, match=f"not n = {n}, k = {k}"):
                Cublas().kernels(GemmShape("a", 3, n, k, dtype), nothing)


def test_providers_without_scales_say_so() -> None:
    shape, one = GemmShape("a", 64, 64, 64, "scaled_int8"), torch.zeros(1)
    with pytest.raises(UnsupportedError, match="torch has no product of int8 with scales"):
        Cublas().kernels(shape, Operands(one, one, one, one, one))
    with pytest.raises(UnsupportedError, match="does not scale its results, as scaled_int8 asks for"):
        TritonMatmul.kernels(object(), shape, Operands(one, one, one, one, one))  # type: ignore[arg-type]


CODE = """
import torch
from hillclimb.harness.gemm.providers.provider import Operands
from hillclimb.harness.gemm.providers.triton_matmul import TileConfig, Workspace, likeliest, multiply
from hillclimb.harness.gemm.shape import GemmShape

CONFIGS = [
    (TileConfig(64, 16, 32, 2, 4, 1), 3),
    (TileConfig(64, 32, 32, 2, 4, 3), 3),
    (TileConfig(128, 64, 64, 2, 4, 4), 3),
    *((TileConfig(64, 32, 32, 2, 4, is_streamed=True), programs) for programs in (1, 2, 3, 5, 7, 1000)),
]
torch.manual_seed(0)
for m, n, k, dtype in [(5, 48, 96, "f16"), (33, 208, 256, "f16"), (70, 144, 512, "int8")]:
    kind = torch.int8 if dtype == "int8" else torch.float16
    x, w = ((torch.randn(rows, k) * (30 if dtype == "int8" else 1)).to(kind) for rows in (m, n))
    reference = x.double() @ w.double().t()
    for config, programs in CONFIGS:
        out = torch.full((m, n), -1, dtype=torch.int32 if dtype == "int8" else kind)
        to = Operands(x, w, out)
        workspace = Workspace.for_all(GemmShape("", m, n, k, dtype), [config], programs, to)
        for _ in range(2):
            out.fill_(-1)
            multiply(to, config, programs, workspace)
            error = (out.double() - reference).abs().max()
            assert error <= (0 if dtype == "int8" else 0.05), (m, n, k, config, float(error))
            assert not workspace.counts.any()
for m in (1, 16, 300, 8192):
    for dtype in ("bf16", "fp8", "int8"):
        configs = likeliest(GemmShape("", m, 4096, 14336, dtype), 132)
        assert configs and len({str(one) for one in configs}) == len(configs)
        assert all(one.tiles(m, 4096) % 132 and one.splits == 1 for one in configs if one.is_streamed)
        assert any(one.is_streamed for one in configs)
print("right")
"""


@pytest.mark.slow(15)
def test_the_triton_kernel_is_right_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    told = subprocess.run(
        [sys.executable, "-c", CODE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert told.stdout == "right\n", told.stderr[-3000:]


COMPILE = """
import json
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver
noting = use_compile_only_driver(90)
import torch
from hillclimb.harness.gemm.providers.provider import Operands
from hillclimb.harness.gemm.providers.triton_matmul import Workspace, likeliest, multiply
from hillclimb.harness.gemm.shape import GemmShape

def empty(rows, columns):
    return torch.empty((rows, columns), dtype=torch.bfloat16, device="meta")

for m in (16, 512):
    shape = GemmShape("", m, 6144, 4096, "bf16")
    to = Operands(empty(m, shape.k), empty(shape.n, shape.k), empty(m, shape.n))
    configs = likeliest(shape, 132)
    chosen = [*[one for one in configs if not one.is_streamed][:2], *[one for one in configs if one.is_streamed][:2]]
    for one in chosen:
        multiply(to, one, 132, Workspace.for_all(shape, [one], 132, to))
print("ANSWER" + json.dumps([(made.name, made.stack, made.shared) for made in noting.kernels.values()]))
"""


@pytest.mark.slow(30)
@pytest.mark.timeout(300)
def test_hopper_compiles_the_triton_kernels_without_a_spill(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path)},
        check=False,
    )
    assert "ANSWER" in done.stdout, done.stderr[-3000:]
    made = json.loads(done.stdout.partition("ANSWER")[2])
    assert {name for name, _, _ in made} == {"matmul_kernel", "streamed_kernel"} and len(made) == 8
    for _, stack, shared in made:
        assert stack in (0, None), "spilled"  # None where cuobjdump is not there
        assert 1 << 15 < shared <= 232448
