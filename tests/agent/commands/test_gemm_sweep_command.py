"""hillclimb gemm sweep, as it is typed; the profiler and nvidia-smi are stand-ins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hillclimb.agent.cli import app
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.results import read_results
from tests import fakes

KERNELS = {"tile_a": 0.1, "tile_b": 0.2, "tile_c": "aborts"}
SMI = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\necho "NVIDIA H200, 580.159.04"\n'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a profiler and a nvidia-smi that name one GPU."""
    binary = tmp_path / "cutlass_profiler"
    shutil.copy(Path(fakes.__file__).with_name("cutlass_profiler.py"), binary)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    for program in (binary, smi):
        program.chmod(0o755)
    (tmp_path / "kernels.json").write_text(json.dumps(KERNELS))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUTLASS_PROFILER_BIN", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words: str, status: int = 0) -> str:
    found = CliRunner().invoke(app, ["gemm", "sweep", *words])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == status, found.output
    return found.stdout


def test_a_sweep_writes_what_compare_reads(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLASS_PROFILER_BIN", "cutlass_profiler")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    shapes = "down_m1_n4096_k14336,qkv_m16_n6144_k4096"
    out = typed("--output-dir", "times", "--shapes", shapes).splitlines()
    assert out[0].startswith("down_m1_n4096_k14336: ")
    assert "TFLOP/s, tile_a; 2 right, 1 failed" in out[0]
    assert out[-1] == "2 shapes: 4 times, 2 failures; written to times/cutlass_profiler_results.json"
    found = read_results(machine / "times" / "cutlass_profiler_results.json")
    assert (found.gpu.name, found.gpu.driver) == ("NVIDIA H200", "580.159.04")
    assert {one.status for one in found.failed} == {"aborted"}
    assert (machine / "asked").read_text().split()[-2:] == ["-i", "3"]
    told = json.loads(typed("--output-dir", "times", "--shapes", shapes, "--json"))
    assert told == json.loads(found.model_dump_json(by_alias=True))


def test_a_shape_without_a_right_kernel_is_named(machine: Path) -> None:
    (machine / "kernels.json").write_text(json.dumps({"tile_a": "incorrect"}))
    words = ["--profiler-bin", "cutlass_profiler", "--shapes", "down_m1_n4096_k14336"]
    assert "down_m1_n4096_k14336: 0 right, 1 failed" in typed(*words, status=1)


def test_what_is_missing_is_told(machine: Path) -> None:
    with pytest.raises(UsageError, match="set CUTLASS_PROFILER_BIN"):
        typed()
    words = ["--profiler-bin", "cutlass_profiler", "--shapes", "down_m1_n4096_k14336"]
    with pytest.raises(UsageError, match="write each as --name=value"):
        typed(*words, "--extra-profiler-flags", "swizzle_size=2")
    (machine / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    with pytest.raises(UsageError, match="No devices were found"):
        typed(*words)
