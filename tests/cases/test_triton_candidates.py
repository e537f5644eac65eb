"""The softmax in CUDA C++, PTX, CuTe DSL and Triton, as far as they go without a GPU: read, compiled, refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.policy.policy import check_policy
from tests.cases.workspace import CASES

CASE = CASES / "demo" / "triton_softmax"
CANDIDATES = Path(__file__).parents[1] / "candidates"
LANGUAGES = ("cuda_cpp", "cute_dsl", "ptx", "triton")

IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import kernel; print(len(kernel.SOFTMAX._cubin))"
WITHOUT = "import sys; sys.modules['{0}'] = None; sys.path.insert(0, sys.argv[1]); import kernel"

CALL = """
import json, sys, warnings
import torch
sys.path.insert(0, sys.argv[1])
from kernel import run
worst = 0.0
for shape in ((1, 1), (3, 5), (7, 1000), (2, 4097), (2, 33333)):
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 30 - 300).bfloat16()
    y = torch.full_like(x, float("nan"))
    run(x, y)
    reference = torch.softmax(x.double(), 1)
    worst = max(worst, float(((y.double() - reference).abs() / reference.clamp_min(1e-30)).max()))
print(json.dumps(worst))
"""


slow = pytest.mark.slow(3)


def overlay(folder: Path, language: str) -> Path:
    """The case's workspace with this candidate's files in it."""
    shutil.copytree(CASE / "workspace", folder / "workspace")
    shutil.copytree(CANDIDATES / language, folder / "workspace", dirs_exist_ok=True)
    return folder / "workspace"


def execute(script: str, workspace: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(workspace)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_policy_admits_each_language(tmp_path: Path, language: str) -> None:
    check_policy(overlay(tmp_path, language), Case(CASE).settings.policy)


@pytest.mark.slow(3)
@pytest.mark.parametrize("language", ["cuda_cpp", "ptx"])
def test_code_is_made_at_import_without_a_gpu(tmp_path: Path, language: str) -> None:
    done = execute(IMPORT, overlay(tmp_path, language))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 4000


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("language", "file", "right", "wrong", "says"),
    [
        ("cuda_cpp", "softmax.cu", "__expf(", "__expof(", 'identifier "__expof" is undefined'),
        pytest.param("cuda_cpp", "softmax.cu", "cuda_bf16.h", "no_such.h", "no_such.h", marks=slow),
        pytest.param(
            "ptx",
            "softmax.ptx",
            "ex2.approx.ftz.f32",
            "ex3.approx.f32",
            "Not a name of any known instruction",
            marks=slow,
        ),
        pytest.param("ptx", "softmax.ptx", "bra RESULT;", "bra NOWHERE;", "NOWHERE", marks=slow),
    ],
)
def test_what_does_not_compile_says_why_at_import(
    tmp_path: Path, language: str, file: str, right: str, wrong: str, says: str
) -> None:
    workspace = overlay(tmp_path, language)
    source = (workspace / file).read_text()
    assert right in source
    (workspace / file).write_text(source.replace(right, wrong))
    done = execute(IMPORT, workspace)
    assert done.returncode != 0
    assert f"RuntimeError: {file} does not " in done.stderr
    assert says in done.stderr


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("language", "module", "says"),
    [
        pytest.param("cuda_cpp", "cuda.bindings", "pip install 'cuda-bindings>=13'", marks=slow),
        pytest.param("ptx", "cuda", "pip install 'cuda-bindings>=13'", marks=slow),
        ("cute_dsl", "cutlass", "pip install nvidia-cutlass-dsl"),
    ],
)
def test_a_missing_toolchain_says_what_to_install(
    tmp_path: Path, language: str, module: str, says: str
) -> None:
    done = execute(WITHOUT.format(module), overlay(tmp_path, language))
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.slow(4)
def test_the_triton_candidate_is_right_when_interpreted(tmp_path: Path) -> None:
    done = execute(CALL, overlay(tmp_path, "triton"), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) < torch.finfo(torch.bfloat16).eps


def test_both_demos_bring_the_same_loader() -> None:
    first, second = (
        CASES / "demo" / name / "workspace" / "cuda_code.py" for name in ("triton_softmax", "triton_rmsnorm")
    )
    assert first.read_bytes() == second.read_bytes()
