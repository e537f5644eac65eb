"""Which generated kernels meet a shape, and how they are run; calling them takes a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.point import RowOperand
from hillclimb.harness.gemm.families.run_option import RunOption
from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, KernelCatalog, write_catalog
from hillclimb.harness.gemm.generator.interface import PREPARE, RUN, WORKSPACE
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points
from hillclimb.harness.gemm.providers.generated import (
    LOOKS,
    LOOKS_OF_KERNEL,
    Generated,
    Scratch,
    _KernelCall,
)
from hillclimb.harness.gemm.providers.provider import Operands, UnsupportedError
from hillclimb.harness.gemm.providers.worker import load
from hillclimb.harness.gemm.shape import GemmShape

POINTS = chosen_points("simple_gemm", "hopper", "bf16")
NOTHING = Operands(None, None, None)


def provider(folder: Path, *kernels: GeneratedKernel) -> Generated:
    write_catalog(folder, KernelCatalog(schema=3, architecture="90a", software={}, kernels=kernels), [])
    return Generated(str(folder))


def built(point: AnyPoint, **facts: object) -> GeneratedKernel:
    return GeneratedKernel(point=point, outcome="built", library="libraries/a.so").model_copy(update=facts)


def names(folder: Path, shape: GemmShape, *kernels: GeneratedKernel) -> list[str]:
    return list(provider(folder, *kernels).kernels(shape, NOTHING))


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


def point(name: str) -> AnyPoint:
    return next(one for one in POINTS if one.name == f"simple_gemm_bf16_{name}")


def test_a_kernel_is_run_in_every_way_that_it_has(tmp_path: Path) -> None:
    small, large = GemmShape("a", 64, 4096, 4096, "bf16"), GemmShape("b", 4096, 4096, 4096, "bf16")
    persistent = built(point("128x128x64_2x1_cooperative_shared_persistent_tokens"))
    stream_k = built(point("128x128x64_2x1_cooperative_shared_stream_k_tokens"))
    ends = {name.partition("_tokens_")[2] for name in names(tmp_path, small, persistent)}
    assert ends == {"raster0_splits1", "raster0_splits1_pdl"}
    ends = {name.partition("_tokens_")[2] for name in names(tmp_path, large, persistent)}
    assert ends == {f"raster{raster}_splits1{pdl}" for raster in (1, 2) for pdl in ("", "_pdl")}
    ends = {name.partition("_tokens_")[2] for name in names(tmp_path, small, stream_k)}
    assert ends == {f"raster0_splits{splits}" for splits in (1, 2, 4)}


def test_the_likeliest_come_first_and_not_all(tmp_path: Path) -> None:
    sides = {}
    for m in (16, 8192):
        found = names(tmp_path, GemmShape("a", m, 4096, 4096, "bf16"), *map(built, POINTS))
        assert len(found) == LOOKS == len(set(found))
        sides[m] = [int(side) for one in found[:10] for side in one.split("_")[3].split("x")[:2]]
    assert min(sides[8192]) > min(sides[16])


@pytest.mark.parametrize(
    "kernel",
    [
        GeneratedKernel(point=POINTS[0], outcome="failed"),
        built(POINTS[0], spill_bytes=8),
        built(POINTS[0], losses=("C7510",)),
        built(POINTS[0].model_copy(update={"dtype": "f16"})),
    ],
)
def test_what_is_not_sound_or_of_another_type_is_passed_over(tmp_path: Path, kernel: GeneratedKernel) -> None:
    shape = GemmShape("a", 16, 4096, 4096, "bf16")
    with pytest.raises(UnsupportedError, match="takes bf16 with these sizes"):
        names(tmp_path, shape, kernel)


@pytest.mark.parametrize(("n", "k"), [(4095, 4096), (4092, 4096), (4096, 4095), (4096, 4092)])
def test_rows_that_tma_cannot_take_are_refused(tmp_path: Path, n: int, k: int) -> None:
    with pytest.raises(UnsupportedError):
        names(tmp_path, GemmShape("a", 16, n, k, "bf16"), built(POINTS[0]))


def test_a_card_that_they_are_not_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    with pytest.raises(UnsupportedError, match="are for sm_90a"):
        names(tmp_path, GemmShape("a", 16, 4096, 4096, "bf16"), built(POINTS[0]))


def test_a_library_that_is_not_what_was_compiled_is_not_loaded(tmp_path: Path) -> None:
    shape = GemmShape("a", 16, 4096, 4096, "bf16")
    loaded = provider(tmp_path, built(POINTS[0], library_sha256="0" * 64))
    loaded._libraries[Path("libcuda")] = None  # type: ignore[assignment]  # so that a machine without a GPU gets so far
    with pytest.raises(UnsupportedError, match="is not what was compiled"):
        loaded.launch(shape, loaded.kernels(shape, NOTHING)[0])
    (tmp_path / "libraries").mkdir(exist_ok=True)
    (tmp_path / "libraries" / "a.so").write_bytes(b"another")
    with pytest.raises(UnsupportedError, match="is not what was compiled"):
        loaded.launch(shape, loaded.kernels(shape, NOTHING)[0])


def test_memory_is_shared_and_what_was_given_out_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def empty(size: int, **_: object) -> torch.Tensor:
        made.append(torch.zeros(size, dtype=torch.uint8))
        return made[-1]

    monkeypatch.setattr(torch, "empty", empty)
    scratch = Scratch()
    sizes = [100, 1, 128, 3000, 100, 4096]
    addresses = [scratch.address(size) for size in sizes]
    assert [one.numel() for one in made] == [128, 4096]
    assert addresses == [made[at].data_ptr() for at in (0, 0, 0, 1, 1, 1)]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call asks of the GPU."""
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132)
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(Scratch, "address", lambda _, size: size)


@pytest.mark.usefixtures("stream")
def test_a_kernel_is_prepared_once_and_again_where_that_failed() -> None:
    asked, refused = list[int](), [PREPARE]

    def function(action: int, _: object) -> int:
        asked.append(action)
        return refused.pop() if action in refused else 0

    call = _KernelCall(function, GemmShape("a", 8, 8, 8, "bf16"), RunOption(), Scratch())  # type: ignore[arg-type]
    one = torch.zeros(8, 8)
    with pytest.raises(UnsupportedError, match="refuses the shape: status 1"):
        call(Operands(one, one, one))
    call(Operands(one, one, one))
    call(Operands(one, one, one))
    assert asked == [WORKSPACE, PREPARE, WORKSPACE, PREPARE, RUN, RUN]


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("rows", ["tokens", "features"])
def test_scales_go_with_the_operand_that_they_are_of(rows: RowOperand) -> None:
    seen = []

    def function(action: int, request: Any) -> int:
        of = request._obj
        seen.append((of.a, of.row_scales, of.b, of.column_scales))
        return 0

    x, w, out, x_scales, w_scales = (torch.zeros(8, 8) for _ in range(5))
    shape = GemmShape("a", 8, 8, 8, "scaled_fp8")
    _KernelCall(function, shape, RunOption(rows=rows), Scratch())(  # type: ignore[arg-type]
        Operands(x, w, out, x_scales, w_scales)
    )
    of_x, of_w = (x.data_ptr(), x_scales.data_ptr()), (w.data_ptr(), w_scales.data_ptr())
    assert {*seen} == {(*of_x, *of_w) if rows == "tokens" else (*of_w, *of_x)}


@pytest.mark.usefixtures("stream")
def test_groups_are_told_to_a_kernel() -> None:
    seen = set()

    def function(action: int, request: Any) -> int:
        of = request._obj
        seen.add((of.a, of.b, of.rows, of.columns, of.groups, of.group_ends))
        return 0

    x, w, ends = torch.zeros(40, 8), torch.zeros(3, 16, 8), torch.tensor([9, 9, 40], dtype=torch.int32)
    shape = GemmShape("a", 40, 16, 8, "bf16", groups=3)
    call = _KernelCall(function, shape, RunOption(rows="features"), Scratch())  # type: ignore[arg-type]
    call(Operands(x, w, x, group_rows=(9, 0, 31), group_ends=ends))
    assert seen == {(w.data_ptr(), x.data_ptr(), 16, 40, 3, ends.data_ptr())}


def test_products_of_groups_have_kernels_of_their_own(tmp_path: Path) -> None:
    grouped = chosen_points("grouped_gemm", "hopper", "bf16")[:60]
    kernels = [built(one) for one in (*POINTS[:20], *grouped)]
    single = GemmShape("a", 64, 4096, 4096, "bf16")
    for shape, kind in ((single, "simple"), (replace(single, groups=8), "grouped")):
        assert {name.partition("_")[0] for name in names(tmp_path, shape, *kernels)} == {kind}
    with pytest.raises(UnsupportedError, match="takes bf16 of 8 groups with these sizes"):
        names(tmp_path, replace(single, groups=8), *kernels[:20])
    with pytest.raises(UnsupportedError, match="takes bf16 of 513 groups with these sizes"):
        names(tmp_path, replace(single, groups=513), *kernels)


def test_only_those_that_are_named_are_run_and_for_every_shape(tmp_path: Path) -> None:
    kernels = [built(one) for one in POINTS[:40]]
    every = provider(tmp_path, *kernels)
    chosen = every.kernels(GemmShape("a", 16, 4096, 4096, "bf16"), NOTHING)[3:5]
    few = Generated(str(tmp_path), *chosen)
    for m in (16, 4096):
        assert list(few.kernels(GemmShape("a", m, 4096, 4096, "bf16"), NOTHING)) == chosen
        assert not few.refine(chosen)
    assert few.software() != every.software() != Generated(str(tmp_path), chosen[0]).software()
    with pytest.raises(UnsupportedError):
        few.kernels(GemmShape("a", 16, 4096, 4096, "f16"), NOTHING)
    for name in (POINTS[50].name + "_raster0_splits1", chosen[0] + "_x", "nothing"):
        with pytest.raises(UsageError, match="has no kernel"):
            Generated(str(tmp_path), name)


def test_a_kernel_that_is_named_alone_is_run_in_its_likeliest_ways(tmp_path: Path) -> None:
    narrow, wide = (
        next(
            one
            for one in chosen_points("warpgroup_gemm", "flexible", "bf16")
            if one.name == f"warpgroup_gemm_bf16_{name}_flexible_by1"
        )
        for name in ("64x16x64_1x1", "128x128x64_2x1")
    )
    every = provider(tmp_path, built(narrow), built(wide), *(built(one) for one in POINTS[:20]))
    shape = GemmShape("a", 2048, 4096, 4096, "bf16")
    named = next(name for name in every.kernels(shape, NOTHING) if name.startswith("simple_gemm"))
    found = Generated(str(tmp_path), narrow.name, wide.name, named)
    ways = list(found.kernels(shape, NOTHING))
    assert ways[0] == named and not found.refine(ways)
    of_wide = [name for name in ways if name.startswith(f"{wide.name}_")]
    assert len(of_wide) == len(ways) - 1, "a tile of 16 columns is hopeless at m 2048"
    orders = {re.sub("raster[12]", "", name) for name in of_wide}
    assert len(orders) == LOOKS_OF_KERNEL and len(of_wide) == 2 * len(orders)
    assert any("persistent" in name for name in of_wide)
    assert any("splits2" in name for name in found.kernels(replace(shape, m=256), NOTHING))
    few = [name for name in found.kernels(replace(shape, m=4), NOTHING) if name != named]
    assert few and all(name.startswith(f"{narrow.name}_") for name in few)
    others = [
        Generated(str(tmp_path), *names).software() for names in ([narrow.name], [wide.name, narrow.name])
    ]
    assert others[0] != others[1]


def test_without_pdl_no_kernel_begins_before_the_one_before_it_ends(tmp_path: Path) -> None:
    own = [built(one) for one in chosen_points("warpgroup_gemm", "hopper", "bf16")[:40]]
    every = provider(tmp_path, *(built(one) for one in POINTS[:40]), *own)
    shape = GemmShape("a", 16, 4096, 4096, "bf16")
    dependent = [name for name in every.kernels(shape, NOTHING) if name.endswith("_pdl")]
    assert {name.partition("_")[0] for name in dependent} == {"simple", "warpgroup"}
    plain = load("generated", str(tmp_path), "--no-pdl")
    assert isinstance(plain, Generated)
    found = list(plain.kernels(shape, NOTHING))
    found += plain.refine(found)
    assert {name.partition("_")[0] for name in found} == {"simple", "warpgroup"}
    assert not [name for name in found if name.endswith("_pdl")]
    named = load("generated", str(tmp_path), "--no-pdl", dependent[0])
    assert list(named.kernels(shape, NOTHING)) == [dependent[0].removesuffix("_pdl")]


def test_another_catalog_is_another_software(tmp_path: Path) -> None:
    one = provider(tmp_path, built(POINTS[0])).software()
    assert one == provider(tmp_path, built(POINTS[0])).software()
    assert one != provider(tmp_path, built(POINTS[1])).software()
