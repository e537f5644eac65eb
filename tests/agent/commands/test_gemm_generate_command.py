"""hillclimb gemm generate, as it is typed; the compiler is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hillclimb.agent.commands.gemm import generate
from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.generator.catalog import KernelCatalog, read_catalog
from hillclimb.harness.gemm.generator.types import AnyPoint
from tests.agent.commands.gemm_commands import typed_gemm, work_with_stand_in_nvcc


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_with_stand_in_nvcc(tmp_path, monkeypatch)


def typed(*words: str, status: int = 0) -> str:
    return typed_gemm("generate", *words, status=status)


def test_all_points_of_the_seed_are_listed_with_reasons(folder: Path) -> None:
    listed = json.loads(typed("--args", "seed002", "--list", "--json"))["kernels"]
    assert len(listed) == 3888
    able = [name for name, reason in listed.items() if not reason]
    assert (
        typed("--args", "seed002", "--list").splitlines()[-1] == f"{len(able)} of 3888 kernels can be built"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["nvcc"]


def test_what_is_chosen_is_built_and_built_once(folder: Path) -> None:
    words = ("--kernels", "*_128x128x64_*_cooperative_*_tokens", "--jobs", "4")
    told = json.loads(typed(*words, "--json"))
    assert told == {
        "folders": ["build/gemm-kernels/simple_gemm_bf16"],
        "asked": 12,
        "built": 12,
        "failed": {},
        "unsound": [],
    }
    asked = (folder / "log").read_text()
    assert (
        typed(*words)
        == "build/gemm-kernels/simple_gemm_bf16: 12 kernels built, 0 failed, 0 not tried (--list tells why)\n"
    )
    assert (folder / "log").read_text() == asked


def test_what_is_no_good_is_built_by_force_only(folder: Path) -> None:
    words = ("--args", "seed002", "--kernels", "*_256x256x64_1x1_cooperative_shared_persistent_*")
    with pytest.raises(UsageError, match="no kernel is left"):
        typed(*words)
    assert "1 kernel built" in typed(*words, "--force")


def test_winners_are_built_whatever_their_types(folder: Path) -> None:
    """Each compiled once, in however many ways it is run; names one a line may be of no set."""
    stem = "warpgroup_gemm_bf16_64x16x64_1x1_split1_once_by1"
    other = "simple_gemm_bf16_64x32x64_1x1_pingpong_single_persistent_tokens"
    ways = [
        f"{stem}_tokens_1x1_raster1",
        f"{stem}_features_1x2_raster2_pdl",
        f"{other}_raster0_splits1",
    ]
    table = {"schema": 2, "kernels": [f"generated:{way}" for way in ways], "fall_back": 0, "known": []}
    (folder / "dispatch.json").write_text(json.dumps(table))
    of_no_set = "warpgroup_gemm_bf16_64x136x64_1x1_split1_once_by1_tokens_1x1_raster1"
    (folder / "won.txt").write_text(f"{of_no_set}\n\n{ways[0]}\n")
    words = ("--winners", "dispatch.json", "--winners", "won.txt")
    assert len(json.loads(typed(*words, "--list", "--json"))["kernels"]) == 3
    told = json.loads(typed(*words, "--json"))
    assert sorted(told["folders"]) == [
        f"build/gemm-kernels/{kind}_bf16" for kind in ("simple_gemm", "warpgroup_gemm")
    ]
    assert (told["asked"], told["built"]) == (3, 3)
    operators = Path("build/gemm-kernels/torch_ops.py").read_text()
    assert all(f'"{name}": ("' in operators for name in (stem, other)), "one module has both types"
    built = {point.point.name for one in told["folders"] for point in read_catalog(Path(one)).kernels}
    assert built == {stem, other, of_no_set.removesuffix("_tokens_1x1_raster1")}


def test_winners_that_cannot_be_generated_are_told(folder: Path) -> None:
    (folder / "won.txt").write_text("warpgroup_gemm_int8_64x16x64_1x1_split1_once_by1_tokens_1x1_raster1\n")
    with pytest.raises(UsageError, match="raster1 is no kernel that can be generated"):
        typed("--winners", "won.txt")
    for words in (
        ("--kernels", "*"),
        ("--dtype", "fp8"),
        ("--args", "hopper"),
        ("--generator-type", "scaled_mm"),
    ):
        with pytest.raises(UsageError, match="--winners names the kernels; leave --generator-type"):
            typed("--winners", "won.txt", *words)
    for name in (
        "warpgroup_gemm_bf16_64x16x64_1x0_split1_once_by1",
        "simple_gemm_bf16_0x32x64_1x1_basic_single_persistent_tokens",
    ):
        (folder / "zero.txt").write_text(name)
        with pytest.raises(UsageError, match="is no kernel that can be generated"):
            typed("--winners", "zero.txt")
    (folder / "other.txt").write_text("two words\n")
    with pytest.raises(UsageError, match=r"other\.txt"):
        typed("--winners", "other.txt")


def test_a_folder_of_another_version_is_told_before_anything_is_compiled(folder: Path) -> None:
    other = folder / "build/gemm-kernels/simple_gemm_f16"
    other.mkdir(parents=True)
    (other / "kernels.json").write_text('{"schema": 2, "architecture": "90a", "software": {}, "kernels": []}')
    with pytest.raises(UsageError, match=r"simple_gemm_f16/kernels\.json is spoilt or of another version"):
        typed("--kernels", "*_128x128x64_1x1_cooperative_*_tokens")
    assert not (folder / "log").exists()


def test_operators_are_those_that_are_there_where_a_folder_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = generate._build

    def failing(points: list[AnyPoint], place: Path, **how: Any) -> KernelCatalog:
        if place.name == "warpgroup_gemm_bf16":
            raise MachineError("no memory")
        return build(points, place, **how)

    stem = "simple_gemm_bf16_64x{}x64_1x1_pingpong_single_persistent_tokens"
    typed("--kernels", stem.format(32))
    monkeypatch.setattr(generate, "_build", failing)
    (folder / "won.txt").write_text(f"{stem.format(64)}\nwarpgroup_gemm_bf16_64x16x64_1x1_split1_once_by1\n")
    with pytest.raises(MachineError, match="no memory"):
        typed("--winners", "won.txt")
    operators = Path("build/gemm-kernels/torch_ops.py").read_text()
    assert stem.format(64) in operators and stem.format(32) not in operators


def test_a_name_that_no_kernel_has_is_told() -> None:
    with pytest.raises(UsageError, match="no kernel of hopper has the name no_such"):
        typed("--kernels", "no_such")
