"""hillclimb gemm generate, as it is typed; the compiler is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hillclimb.harness.errors import UsageError
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
        "folder": "build/gemm-kernels/simple_gemm_bf16",
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


def test_a_name_that_no_kernel_has_is_told() -> None:
    with pytest.raises(UsageError, match="no kernel of hopper has the name no_such"):
        typed("--kernels", "no_such")
