"""Kernels of many points: twelve to a file, a faulty one costs itself, and nothing is compiled twice."""

from __future__ import annotations

import ctypes
import random
import shutil
from pathlib import Path

import pytest

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.compiler.cutlass import Cutlass, find_cutlass
from hillclimb.harness.gemm.compiler.machine import default_jobs
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit, of_wheels
from hillclimb.harness.gemm.families.collective_rules import compiler_refusal
from hillclimb.harness.gemm.folder import locked
from hillclimb.harness.gemm.generator import building as buildings
from hillclimb.harness.gemm.generator import source as sources
from hillclimb.harness.gemm.generator.building import KernelBuilding
from hillclimb.harness.gemm.generator.catalog import (
    CATALOG,
    LIBRARIES,
    KernelCatalog,
    read_catalog,
    read_catalogs,
)
from hillclimb.harness.gemm.generator.interface import WORKSPACE, GemmRequest
from hillclimb.harness.gemm.generator.source import grouped, render
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points, refusal
from hillclimb.harness.gemm.shape import UNSCALED, Dtype
from tests import fakes

POINTS = [point for point in chosen_points("simple_gemm", "seed002", "bf16") if not refusal(point)]


class Lab:
    """A compiler that stands in for nvcc, and a CUTLASS of one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        nvcc = folder / "bin" / "nvcc"
        nvcc.parent.mkdir()
        shutil.copy(Path(fakes.__file__).with_name("nvcc.py"), nvcc)
        self.toolkit = find_toolkit(nvcc)
        self.told: list[str] = []

    def build(self, points: list[AnyPoint], cutlass: str = "4.2.0") -> KernelCatalog:
        tree = Cutlass(self.folder, cutlass, cutlass)
        store = BuildStore(self.folder / "store", self.toolkit, tree.headers)
        return KernelBuilding(tree, self.toolkit, self.told.append).build(
            CompileRun(store, 4), points, self.folder / "out"
        )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of kernels whose files do not compile."""
    return spoiled(monkeypatch, "#error\n")


@pytest.fixture
def fatal(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of kernels whose files take more memory than there is."""
    return spoiled(monkeypatch, "// says Killed\n")


def spoiled(monkeypatch: pytest.MonkeyPatch, by: str) -> set[str]:
    names: set[str] = set()

    def rendered(points: tuple[AnyPoint, ...]) -> str:
        return render(points) + (by if names & {point.name for point in points} else "")

    monkeypatch.setattr(buildings, "render", rendered)
    return names


def test_a_file_has_kernels_that_differ_in_their_cluster_only() -> None:
    files = grouped(POINTS)
    assert sorted(point.name for file in files for point in file) == sorted(point.name for point in POINTS)
    assert max(map(len, files)) <= 12 and len(files) < len(POINTS) / 4
    for file in files:
        assert len({point.model_copy(update={"cluster": (1, 1)}).name for point in file}) == 1


def test_every_kernel_of_a_file_is_declared_and_defined_once() -> None:
    for file in grouped(POINTS)[:3]:
        text = render(file)
        for point in file:
            assert text.count(f"int {point.name}(GemmAction action, GemmRequest* request);") == 1
            assert text.count(f"int {point.name}(GemmAction action, GemmRequest* request) {{") == 1
            assert text.count(f"struct {point.name}_kernel\n") == 1
        assert "{{" not in text.replace("{{Sum(1)", "") and "{%" not in text


def test_what_decides_a_kernel_is_in_its_source() -> None:
    base = POINTS[0]
    changed = [
        {"tile": (64, 64, 64)},
        {"cluster": (2, 1)},
        {"schedule": "pingpong"},
        {"epilogue": "shared"},
        {"scheduler": "stream_k"},
        {"rows": "features"},
        *({"dtype": dtype} for dtype in ("f16", "fp8", "int8")),
    ]
    texts = {render((base.model_copy(update=change),)).replace("_kernel", "") for change in [{}, *changed]}
    assert len(texts) == len(changed) + 1
    assert "CUTLASS_ENABLE_GDC" not in render((base.model_copy(update={"scheduler": "stream_k"}),))
    assert "FP8FastAccum" in render((base.model_copy(update={"dtype": "fp8"}),))


def test_only_a_scaled_product_reads_scales() -> None:
    (plain, scaled), (whole, wide) = (
        (render(tuple(chosen_points(generator, "hopper", dtype)[:1])) for generator, dtype in pair)
        for pair in (
            (("simple_gemm", "fp8"), ("scaled_mm", "scaled_fp8")),
            (("simple_gemm", "int8"), ("scaled_mm", "scaled_int8")),
        )
    )
    for text, reads in ((plain, False), (scaled, True), (whole, False), (wide, True)):
        assert ("of.row_scales" in text, "of.column_scales" in text) == (reads, reads)
        assert ("Sum(1), Sum(0)" in text) is not reads
    assert "FP8FastAccum" in scaled and "Result = int32_t" in whole and "Result = cutlass::bfloat16_t" in wide


def test_a_catalog_has_every_kernel_and_a_library_of_each(lab: Lab) -> None:
    points = POINTS[:30]
    catalog = lab.build(points)
    assert [one.point for one in catalog.kernels] == points
    assert all(one.outcome == "built" for one in catalog.kernels)
    libraries = {one.library for one in catalog.kernels}
    folder = lab.folder / "out"
    assert {f"{LIBRARIES}/{path.name}" for path in (folder / LIBRARIES).iterdir()} == libraries
    for one in catalog.kernels:
        assert f"struct {one.point.name}_kernel" in (folder / one.library).read_text()
    assert read_catalog(folder) == catalog and catalog.software["cutlass"] == "4.2.0"


def test_nothing_is_compiled_twice_and_another_cutlass_compiles_all(lab: Lab) -> None:
    lab.build(POINTS[:30])
    first = len(lab.told)
    lab.build(POINTS[:30])
    lab.build([*grouped(POINTS)[0]])
    assert len(lab.told) == first
    assert len(list((lab.folder / "out" / LIBRARIES).iterdir())) == 1
    lab.build(POINTS[:30], cutlass="4.3.0")
    assert len(lab.told) == 2 * first


def test_a_changed_template_compiles_again(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.build(POINTS[:1])
    templates = shutil.copytree(sources.TEMPLATES, tmp_path / "templates")
    with (templates / "gemm.h.jinja").open("a") as file:
        file.write("// another\n")
    monkeypatch.setattr(sources, "TEMPLATES", templates)
    sources._environment.cache_clear()
    lab.build(POINTS[:1])
    sources._environment.cache_clear()
    assert len(lab.told) == 2


@pytest.mark.parametrize("at", [0, 3, 8])
def test_a_file_that_fails_is_divided_until_only_the_faulty_kernel_does(
    lab: Lab, faulty: set[str], at: int
) -> None:
    file = max(grouped(POINTS), key=len)
    assert len(file) == 8
    faulty.add(file[at % 8].name)
    catalog = lab.build(list(file))
    outcomes = {one.point.name: one.outcome for one in catalog.kernels}
    assert {name for name, outcome in outcomes.items() if outcome == "failed"} == faulty
    failed = next(one for one in catalog.kernels if one.outcome == "failed")
    assert "error: #error" in Path(failed.diagnostics).read_text() and not failed.library
    assert len(lab.told) == 1 + 2 + 2 + 2
    done = [int(text.partition(" of 8 kernels: ")[0]) for text in lab.told]
    assert done == sorted(done) and (done[0], done[-1]) == (0, 8)
    assert sum(text.endswith(", and is divided") for text in lab.told) == 3
    lab.build(list(file))
    assert len(lab.told) == 7


def test_a_file_whose_kernels_all_fail_is_told_of_each(lab: Lab, faulty: set[str]) -> None:
    file = grouped(POINTS)[0]
    faulty |= {point.name for point in file}
    catalog = lab.build([*file, *grouped(POINTS)[1]])
    assert {one.point.name for one in catalog.kernels if one.outcome == "failed"} == faulty


def test_what_the_machine_ends_is_divided_too_and_costs_no_other(lab: Lab, fatal: set[str]) -> None:
    file = max(grouped(POINTS), key=len)
    fatal.add(file[3].name)
    with pytest.raises(MachineError, match=f"compiler of {file[3].name} was stopped"):
        lab.build(list(file))
    catalog = read_catalog(lab.folder / "out")
    assert [one.point for one in catalog.kernels] == [point for point in file if point != file[3]]
    assert lab.told[-1].startswith("8 of 8 kernels: ")
    fatal.clear()
    assert len(lab.build(list(file)).kernels) == 8


def test_a_catalog_stays_where_the_machine_ends_every_compiler(lab: Lab, fatal: set[str]) -> None:
    before = lab.build(POINTS[:4])
    fatal |= {point.name for point in POINTS[4:8]}
    with pytest.raises(MachineError, match="3 other compilers likewise"):
        lab.build(POINTS[4:8])
    assert read_catalog(lab.folder / "out") == before
    assert all((lab.folder / "out" / one.library).exists() for one in before.kernels)


def test_a_damaged_library_is_copied_anew_and_costs_the_store_nothing(lab: Lab) -> None:
    (kernel,) = lab.build(POINTS[:1]).kernels
    library = lab.folder / "out" / kernel.library
    whole = library.read_bytes()
    with library.open("r+b") as file:
        file.write(b"damaged")
    assert lab.build(POINTS[:1]).kernels == (kernel,) and len(lab.told) == 1
    assert library.read_bytes() == whole


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_that_another_process_uses_is_left_alone(lab: Lab, *, shared: bool) -> None:
    """One that generates, or one that times what is in it."""
    lab.build(POINTS[:1])
    with (
        locked(lab.folder / "out", shared=shared),
        pytest.raises(UsageError, match="another process is at work"),
    ):
        lab.build(POINTS[:2])
    assert len(read_catalog(lab.folder / "out").kernels) == 1


def test_two_may_time_the_same_kernels(tmp_path: Path) -> None:
    with locked(tmp_path, shared=True), locked(tmp_path, shared=True):
        pass


def test_a_digest_is_of_the_kernels_and_not_of_where_they_lie(lab: Lab) -> None:
    catalog = lab.build(POINTS[:2])
    (first, second) = catalog.kernels
    moved = first.model_copy(update={"diagnostics": "/elsewhere", "library_sha256": "0"})
    assert catalog.model_copy(update={"kernels": (moved, second)}).digest == catalog.digest
    others = [
        catalog.model_copy(update={"kernels": (first,)}),
        catalog.model_copy(update={"kernels": (first.model_copy(update={"spill_bytes": 8}), second)}),
        catalog.model_copy(
            update={"kernels": (first, second.model_copy(update={"library": "libraries/b.so"}))}
        ),
        catalog.model_copy(update={"software": {**catalog.software, "cutlass": "4.3.0"}}),
    ]
    assert len({one.digest for one in [catalog, *others]}) == 5


def test_a_folder_without_a_catalog_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hillclimb gemm generate --output-dir"):
        read_catalogs(tmp_path)
    (tmp_path / CATALOG).write_text("{}")
    with pytest.raises(
        UsageError, match=r"of another version \(3 slips\); delete its folder, and generate it anew"
    ):
        read_catalog(tmp_path)


@pytest.mark.slow(120)
def test_a_real_compiler_builds_a_kernel(tmp_path: Path) -> None:
    """As far as goes without a GPU."""
    toolkit, tree = find_toolkit(of_wheels()[0]), find_cutlass(None, tmp_path)
    point = next(one for one in POINTS if one.tile == (128, 64, 64) and one.schedule == "cooperative")
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), 1)
    (kernel,) = KernelBuilding(tree, toolkit).build(run, [point], tmp_path / "out").kernels
    assert kernel.outcome == "built" and kernel.is_sound and kernel.registers == 168
    assert point.name.encode() in (tmp_path / "out" / kernel.library).read_bytes()


@pytest.mark.slow(120)
@pytest.mark.parametrize("dtype", UNSCALED)
def test_a_real_compiler_builds_a_kernel_with_scales(tmp_path: Path, dtype: Dtype) -> None:
    toolkit, tree = find_toolkit(of_wheels()[0]), find_cutlass(None, tmp_path)
    point = next(one for one in chosen_points("scaled_mm", "hopper", dtype) if not refusal(one))
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), 1)
    (kernel,) = KernelBuilding(tree, toolkit).build(run, [point], tmp_path / "out").kernels
    assert kernel.outcome == "built" and kernel.is_sound and kernel.registers == 168


@pytest.mark.slow(20)
def test_a_real_compiler_builds_kernels_of_our_own(tmp_path: Path) -> None:
    """One of each way to share work; they need no CUTLASS."""
    toolkit = find_toolkit(of_wheels()[0])
    points = [
        point
        for point in chosen_points("warpgroup_gemm", "hopper", "fp8")
        if point.tile == (128, 32, 128) and point.consumers == (2, 1) and not refusal(point)
    ]
    run = CompileRun(BuildStore(tmp_path / "store", toolkit), default_jobs())
    kernels = KernelBuilding(None, toolkit).build(run, points, tmp_path / "out").kernels
    assert all(one.is_sound and one.registers for one in kernels)
    ways = {(one.point.splits, one.point.is_persistent, one.point.blocks) for one in kernels}
    assert ways == {(1, False, 1), (1, False, 2), (1, True, 1), (2, False, 1), (4, False, 1), (8, False, 1)}


@pytest.mark.slow(20)
@pytest.mark.parametrize(("dtype", "inner"), [("bf16", 64), ("fp8", 128)])
def test_a_real_compiler_builds_flexible_kernels(tmp_path: Path, dtype: Dtype, inner: int) -> None:
    """The largest among them, which may run out of registers."""
    toolkit = find_toolkit(of_wheels()[0])
    tiles = {(256, 144, inner): (2, 1), (128, 256, inner): (2, 1), (192, 32, inner): (3, 1)}
    points = [
        point
        for point in chosen_points("warpgroup_gemm", "flexible", dtype)
        if tiles.get(point.tile) == getattr(point, "consumers", None) and not refusal(point)
    ]
    run = CompileRun(BuildStore(tmp_path / "store", toolkit), default_jobs())
    kernels = KernelBuilding(None, toolkit).build(run, points, tmp_path / "out").kernels
    assert len(kernels) >= 3 and all(one.is_sound and one.registers for one in kernels)
    library = ctypes.CDLL(str(tmp_path / "out" / kernels[0].library))

    def answer(**of: int) -> int:
        sizes = {"rows": 512, "columns": 512, "inner": 1024, "cluster_rows": 1, "cluster_columns": 1}
        request = GemmRequest(**{**sizes, "swizzle": 1, **of})
        return int(getattr(library, kernels[0].point.name)(WORKSPACE, ctypes.byref(request)))

    assert (
        [answer(splits=splits) for splits in (1, 2, 4)]
        == [0, 0, 0]
        == [3 * answer(splits=1, persistent=1)] * 3
    )
    assert {answer(splits=splits) for splits in (-1, 0, 3, 8, 16)} == {8} == {answer(splits=2, persistent=1)}
    assert answer(splits=1, swizzle=0) == 9 and answer(splits=1, steps=-1) == 3
    assert answer(splits=4, cluster_rows=4) == 2 == answer(splits=1, cluster_rows=-1, cluster_columns=-1)


@pytest.mark.slow(20)
@pytest.mark.parametrize("dtype", ["bf16", "scaled_fp8"])
def test_a_real_compiler_builds_kernels_of_groups(tmp_path: Path, dtype: Dtype) -> None:
    toolkit = find_toolkit(of_wheels()[0])
    points = [
        point
        for point in chosen_points("grouped_gemm", "hopper", dtype)
        if point.tile[:2] == (128, 32) and not refusal(point)
    ]
    run = CompileRun(BuildStore(tmp_path / "store", toolkit), default_jobs())
    kernels = KernelBuilding(None, toolkit).build(run, points, tmp_path / "out").kernels
    assert len(kernels) == 9 and all(one.is_sound and one.registers for one in kernels)


@pytest.mark.slow(600)
@pytest.mark.timeout(3000)
def test_the_rules_agree_with_a_real_compiler(tmp_path: Path) -> None:
    """Half of the sample are points that the rules let through; few of a plain sample would be."""
    toolkit, tree = find_toolkit(of_wheels()[0]), find_cutlass(None, tmp_path)
    points = sample(60)
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), default_jobs())
    building = KernelBuilding(tree, toolkit)
    builds = run(building.job((point,)) for point in points)
    unlike = [
        f"{point.name}: {build.record.outcome}, {compiler_refusal(point) or 'can be built'}"
        for point, build in zip(points, builds, strict=True)
        if build.is_built == bool(compiler_refusal(point))
    ]
    assert len(unlike) <= 2, unlike


def sample(count: int) -> list[AnyPoint]:
    points = chosen_points("simple_gemm", "seed002", "bf16")
    parts = [[one for one in points if bool(compiler_refusal(one)) == refused] for refused in (False, True)]
    order = random.Random(count)
    return [one for part in parts for one in order.sample(part, count // 2)]
