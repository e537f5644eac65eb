"""The case studies: complete, admitted by their own policies, every kernel right where it is interpreted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.judge.gate import MIN_CHECKED_CALLS
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.studies.gating import gate_cases
from hillclimb.harness.studies.study import StudyCase, choose_cases
from hillclimb.harness.studies.variants import YARDSTICK_FILE, list_variants, timed_problems
from tests.cases.workspace import CASES, import_file, load_case

NAMES = {
    "unroll_for_loop": {
        "diag_ssm_triton", "fast_rope_embedding", "flash_decode2_llama", "flash_decode2_phi", "fused_recurrent_delta",
        "fused_recurrent_retention", "fused_rwkv6_kernel", "iv_dependent_matmul", "kldiv_ops", "layernorm_fwd_triton",
        "lora_expand_gemv", "matmul_leakyrelu", "matmul_triton1", "mean_reduction", "rmsnorm_fused",
        "rmsnorm_fused_llama", "rmsnorm_implementation", "softmax_optimize", "triton_conv2d_fwd", "triton_matmul",
        "var_len_copy",
    },
    "mask_percentage": {"quantize_kv_transform"},
}  # fmt: skip

DEMOS = 2
"""In Triton, each with one kernel."""

RECURRENCES = {"diag_ssm_triton", "fused_recurrent_delta", "fused_recurrent_retention", "fused_rwkv6_kernel"}
"""They have no yardstick: a loop over thousands of steps is nothing that torch.compile takes."""

FILLING_BYTES, FILLING_FLOPS = 64 << 20, 50e9
"""What fills an H200 for some ten microseconds at the least."""

USED_UP = 0.8
"""Share of the error budget that no kernel of ours comes near: one that does is rejected by chance now and then."""

KNOBS = hashlib.sha256((CASES / "demo" / "triton_softmax" / "workspace" / "knobs.py").read_bytes()).digest()


def chosen() -> list[StudyCase]:
    return choose_cases(CASES)


each = pytest.mark.parametrize("study", chosen(), ids=str)
FEW = [str(study) for study in chosen()[::4]]
"""Those of which a plain run asks what --all asks of each."""


def test_all_are_there() -> None:
    found: dict[str, set[str]] = {}
    for study in chosen():
        found.setdefault(study.study, set()).add(study.name)
    assert found == NAMES


@pytest.mark.slow(1, but=FEW)
@each
def test_a_case_is_complete(study: StudyCase) -> None:
    case, contract = load_case(study.folder, TORCH_DTYPES)
    assert list_variants(case)[:2] == ("baseline", "optimized")
    assert case.settings.device == "cuda"
    assert (case.folder / "program.md").read_text().startswith("# ")
    assert (case.workspace / "docs" / "notes.md").is_file()
    assert len(contract.distributions) >= 3
    for name, suite in case.suites.items():
        assert set(suite.problems) <= set(contract.problems), name
        assert suite.distribution in contract.distributions, name
    assert any(name.startswith("small") for name in contract.problems), "the ones of the table"
    work = [contract.work(contract.problems[name]) for name in timed_problems(case)]
    assert sum(w.bytes >= FILLING_BYTES or w.flops >= FILLING_FLOPS for w in work) >= 2
    interpreted = [
        name for name, p in contract.problems.items() if contract.work(p).bytes <= MAX_INTERPRETED_BYTES
    ]
    assert len(interpreted) >= 4
    check_policy(case.workspace, case.settings.policy)
    knobs = case.workspace / "knobs.py"
    assert not knobs.exists() or hashlib.sha256(knobs.read_bytes()).digest() == KNOBS
    assert (study.name in RECURRENCES) != (study.folder / YARDSTICK_FILE).is_file()


@pytest.mark.slow(20)
@pytest.mark.parametrize("variant", ["optimized", "baseline"])
def test_every_kernel_is_right_on_small_problems(variant: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cases.smallest", str(CASES), variant],
        cwd=CASES.parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kernel for kernel in found if not kernel.get("worst", 2) <= USED_UP] == []
    assert len(found) == sum(map(len, NAMES.values())) + (DEMOS if variant == "optimized" else 0)


@pytest.mark.slow(58)
@pytest.mark.timeout(900)
@each
def test_every_kernel_is_right_where_it_is_interpreted(study: StudyCase, tmp_path: Path) -> None:
    """Compiled for the case's target, and through the gate in the sandbox, with one seed: interpreting is slow."""
    tmp_path.chmod(0o755)
    folder = Path(shutil.copytree(study.folder, tmp_path / "cases" / study.study / study.name))
    settings = (folder / "case.yaml").read_text()
    assert settings.count("seeds: 2") == 1
    (folder / "case.yaml").write_text(settings.replace("seeds: 2", "seeds: 1"))
    found = gate_cases([replace(study, folder=folder)], lambda progress: None, lambda gated: None)
    assert [gated.variant for gated in found.results] == ["baseline", "optimized"]
    for gated in found.results:
        assert gated.report is not None, gated.error
        assert gated.report.passed, f"{gated.variant}: {gated.report.reason}: {gated.report.detail}"
        assert gated.report.runs >= 4 * MIN_CHECKED_CALLS
        assert gated.report.worst <= USED_UP, (gated.variant, gated.report.worst_at)


YARDSTICKS = [study for study in chosen() if (study.folder / YARDSTICK_FILE).is_file()]


@pytest.mark.slow(1, only=[str(study) for study in YARDSTICKS[4:]])
@pytest.mark.parametrize("study", YARDSTICKS, ids=str)
def test_a_yardstick_computes_the_same(study: StudyCase) -> None:
    case, contract = load_case(study.folder, TORCH_DTYPES)
    run: Callable[..., None] = import_file(study.folder / YARDSTICK_FILE).run
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes > MAX_INTERPRETED_BYTES:
            continue
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(3))
            outputs = {
                key: torch.zeros(s.shape, dtype=s.dtype) for key, s in contract.outputs(problem).items()
            }
            run(*inputs.values(), *outputs.values(), **contract.attributes(problem))
            expected = expected_outputs(contract, problem, inputs, 2 * case.settings.gate.error_budget)
            assert worst_error(outputs, expected) <= 1, (name, distribution)
