"""hillclimb gemm build-profiler, as it is typed; the compiler is a stand-in, CUTLASS is the installed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hillclimb.harness.errors import UsageError
from tests.agent.commands.gemm_commands import typed_gemm, work_with_stand_in_nvcc

PREFIX = "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_void_bf16_128x128x64_1x2x1_0_tnn_align8"
PATTERN = f"{PREFIX}_*cooperative*"

pytestmark = pytest.mark.xdist_group("cutlass generator")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_with_stand_in_nvcc(tmp_path, monkeypatch)


def typed(*words: str, status: int = 0) -> str:
    return typed_gemm("build-profiler", *words, status=status)


def test_what_is_listed_is_built(folder: Path) -> None:
    listed = typed("--kernels", PATTERN, "--list").split()
    assert len(listed) > 2 and all(name.startswith(PREFIX) and "cooperative" in name for name in listed)
    assert json.loads(typed("--kernels", PATTERN, "--list", "--json")) == listed
    assert not (folder / "log").exists()
    told = json.loads(typed("--kernels", PATTERN, "--json", "--jobs", "4"))
    assert told == {"path": "build/cutlass_profiler", "kernels": listed, "failed": {}}
    asked = (folder / "log").read_text()
    assert typed("--kernels", PATTERN) == f"build/cutlass_profiler: {len(listed)} kernels\n"
    assert (folder / "log").read_text() == asked
    assert "code=sm_90a" in asked


def test_another_architecture_is_another_build() -> None:
    with pytest.raises(UsageError, match=r"no kernel for sm_80 of the name cutlass3x"):
        typed("--kernels", PATTERN, "--architecture", "80", "--list")


def test_a_compiler_or_a_cutlass_that_is_none_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        typed("--nvcc", "none")
    with pytest.raises(UsageError, match="no scaled_fp8; take one of bf16, f16, fp8, int8"):
        typed("--dtype", "scaled_fp8")
    with pytest.raises(UsageError, match="no CUTLASS in"):
        typed("--cutlass", str(folder))
