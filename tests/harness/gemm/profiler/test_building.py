"""A profiler of CUTLASS's own sources; the compiler is a stand-in, but where a test says so."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.compiler.cutlass import Cutlass, find_cutlass
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import Toolkit, find_toolkit, of_wheels
from hillclimb.harness.gemm.folder import sha256_of
from hillclimb.harness.gemm.profiler import building as buildings
from hillclimb.harness.gemm.profiler.building import KERNELS, ProfilerBuilding
from hillclimb.harness.gemm.profiler.names import parse_name
from hillclimb.harness.gemm.profiler.origin import ProfilerOrigin, origin_file, software_of
from tests import fakes

PATTERN = "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_void_bf16_128x128x64_1x2x1_0_tnn_align8_*"

pytestmark = pytest.mark.xdist_group("cutlass generator")


@cache
def cutlass() -> Cutlass:
    return find_cutlass(None, Path("unused"))


def listing(release: str, pattern: str) -> ProfilerBuilding:
    folder = Path(tempfile.gettempdir(), "hillclimb-listing")
    return ProfilerBuilding(cutlass(), Toolkit(Path("nvcc"), release, ""), folder, (pattern,))


@cache
def generated() -> dict[str, str]:
    return listing("13.0", PATTERN).generated


def building(folder: Path, kernels: tuple[str, ...] = ()) -> tuple[ProfilerBuilding, CompileRun]:
    """With a compiler that fails for these kernels."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir()
    shutil.copy(Path(fakes.__file__).with_name("nvcc.py"), nvcc)
    toolkit = find_toolkit(nvcc)
    found = ProfilerBuilding(cutlass(), toolkit, folder / "store", (PATTERN,))
    wrong = {f"{name}.cu": f"{generated()[f'{name}.cu']}\n#error\n" for name in kernels}
    found.__dict__["generated"] = {**generated(), **wrong}
    return found, CompileRun(BuildStore(folder / "store", toolkit, found.headers), 4)


def test_the_kernels_are_those_that_a_sweep_asks_for() -> None:
    found = listing("13.0", KERNELS["fp8"]).kernels
    names = [parse_name(name) for name in found]
    assert len(found) == 64 and all(name.layout == "tnn" and name.align == 16 for name in names)
    assert all("_gemm_e4m3_e4m3_f32_bf16_bf16_" in name for name in found)


def test_a_name_that_no_kernel_has_is_told() -> None:
    with pytest.raises(UsageError, match=r"CUTLASS 4.2.0 has no kernel for sm_90a of the name no_such"):
        _ = listing("13.0", "no_such").kernels
    with pytest.raises(UsageError, match="generator fails"):
        _ = listing("none", PATTERN).kernels


def test_everything_is_compiled_and_linked(tmp_path: Path) -> None:
    found, run = building(tmp_path)
    built = found.build(run, tmp_path / "out" / "profiler")
    assert built.kernels == found.kernels and len(built.kernels) > 3 and not built.failed
    linked = built.path.read_text()
    assert linked.count("GemmUniversal3xOperation<GemmKernel>(") == len(built.kernels)
    assert "initialize_gemm_reference_operations_fp8in_bf16out(manifest);" in linked
    assert linked.count("int main(") == 1
    assert sorted(path.name for path in built.path.parent.iterdir()) == ["profiler", "profiler.json"]
    software = software_of(built.path, sha256_of(built.path))
    assert (software["cutlass"], software["cuda"]) == ("4.2.0", "13.0")
    asked = (tmp_path / "bin" / "log").read_text().splitlines()
    found.build(run, tmp_path / "again")
    assert (tmp_path / "bin" / "log").read_text().splitlines() == asked


def test_a_target_that_cannot_be_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    found, run = building(tmp_path)
    (tmp_path / "file").write_text("")
    for target, told in [(tmp_path, "it is a folder"), (tmp_path / "file/profiler", "cannot be written")]:
        with pytest.raises(UsageError, match=f"{told}.*--output"):
            found.build(run, target)
    assert not (tmp_path / "bin" / "log").exists()


def test_a_link_that_hangs_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, run = building(tmp_path)
    found.build(run, tmp_path / "profiler")
    monkeypatch.setattr(buildings, "LINK_SECONDS", 0.3)
    (tmp_path / "bin" / "links forever").write_text("")
    with pytest.raises(MachineError, match=r"linked for longer than 0.3 s"):
        found.build(run, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "profiler", "profiler.json", "store"]
    assert not list((tmp_path / "store" / "drafts").iterdir())


def test_a_kernel_that_does_not_compile_is_left_out(tmp_path: Path) -> None:
    wrong = building_kernels()[:2]
    found, run = building(tmp_path, wrong)
    built = found.build(run, tmp_path / "profiler")
    assert [build.record.name for build in built.failed] == [f"{name}.cu" for name in wrong]
    assert built.kernels == building_kernels()[2:]
    assert ProfilerOrigin.model_validate_json(origin_file(built.path).read_bytes()).failed == wrong
    linked = built.path.read_text()
    for name in wrong:
        assert f"void initialize_{name}(Manifest &manifest) {{\n\n}}" in linked
    assert linked.count("GemmUniversal3xOperation<GemmKernel>(") == len(built.kernels)


def test_nothing_is_linked_where_anything_else_fails(tmp_path: Path) -> None:
    found, run = building(tmp_path)
    found.__dict__["generated"]["initialize_all.cpp"] += "#error\n"
    with pytest.raises(MachineError, match=r"initialize_all.cpp does not compile; read .*diagnostics"):
        found.build(run, tmp_path / "profiler")
    shutil.rmtree(tmp_path / "bin")
    other, run = building(tmp_path, building_kernels())
    with pytest.raises(MachineError, match=r"none of \d+ kernels compiles"):
        other.build(run, tmp_path / "profiler")
    assert not (tmp_path / "profiler").exists()


@pytest.mark.parametrize(
    ("told", "software"),
    [
        ("CUTLASS 4.2.0 built on Nov 28", {"cutlass": "4.2.0"}),
        ("CUTLASS @CUTLASS_VERSION@ built on Nov 28", {}),
        ("", {}),
    ],
)
def test_a_binary_of_others_says_its_version_itself(
    tmp_path: Path, told: str, software: dict[str, str]
) -> None:
    binary = tmp_path / "profiler"
    binary.write_text(f"#!/bin/sh\necho '{told}'\n")
    binary.chmod(0o755)
    origin_file(binary).write_text(
        '{"schema": 1, "binary_sha256": "of another", "software": {}, "kernels": []}'
    )
    assert software_of(binary, sha256_of(binary)) == software


@pytest.mark.slow(90)
def test_a_real_compiler_takes_a_kernel_of_cutlass(tmp_path: Path) -> None:
    toolkit = find_toolkit(of_wheels()[0])
    found = ProfilerBuilding(cutlass(), toolkit, tmp_path / "store", (PATTERN,))
    store = BuildStore(tmp_path, toolkit, found.headers)
    name = f"{found.kernels[0]}.cu"
    (build,) = CompileRun(store, 1)([found.job(name, found.generated[name])])
    assert build.is_built, build.diagnostics


def building_kernels() -> tuple[str, ...]:
    return tuple(name.removesuffix(".cu") for name in generated() if name.startswith("cutlass3x"))
