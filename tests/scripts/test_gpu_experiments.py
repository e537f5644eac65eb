"""The GPU experiments' cases are what they say, and their bookkeeping counts right. No GPU is needed for either."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import LaunchSpec, ProcessLimits, thread_variables
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Side
from hillclimb.harness.sandbox.rungs.choose import PreforkRung, choose_rung

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_cases  # noqa: E402
import gpu_error_rates  # noqa: E402

SMALLER = {"softmax": ('"rows": 4096', '"rows": 3'), "small": ('"rows": 256', '"rows": 3')}
SMALLER["gemm"] = ('"n": 4096', '"n": 256')
"""A problem of each kind that the reference computes in no time, and Triton's interpreter in little."""

FIRST = {"softmax": "softmax", "small": "softmax", "gemm": "gemm"}
"""The kernel that does the work."""


def signature(kind: str) -> CallSignature:
    """Of a call of the case's own problem."""
    if kind == "gemm":
        return CallSignature([(name, (4096, 4096), "bfloat16") for name in "abc"])
    return CallSignature([(name, gpu_cases.SIZES[kind], "bfloat16") for name in "xy"])


@pytest.mark.parametrize("kind", gpu_cases.KINDS)
def test_a_case_is_one(kind: str, tmp_path: Path) -> None:
    folder = gpu_cases.write_case(tmp_path, kind, 0.004, pair_blocks=3, segment_ms=1.5)
    case = Case(folder)
    assert case.name == f"experiments/{kind}"
    settings = case.settings
    assert (settings.device, settings.objective.minimum_effect) == ("cuda", 0.004)
    assert (settings.duel.pair_blocks, settings.duel.segment_ms) == (3, 1.5)
    check_policy(case.workspace, settings.policy)
    file = case.contract_file
    assert SMALLER[kind][0] in file.read_text()
    file.write_text(file.read_text().replace(*SMALLER[kind]))
    contract = load_contract(file, dtypes=TORCH_DTYPES)
    check_contract(contract, file)
    assert set(case.suites["main"].problems) == set(contract.problems)
    assert list(contract.outputs(contract.problems["main"])) == [signature(kind).arrays[-1][0]]


def test_segments_last_as_long_as_the_kind_needs(tmp_path: Path) -> None:
    for kind in gpu_cases.KINDS:
        case = Case(gpu_cases.write_case(tmp_path, kind, 0.0025))
        assert case.settings.duel.segment_ms == gpu_cases.SEGMENT_MS


@pytest.fixture(scope="module")
def rung() -> Iterator[PreforkRung]:
    with PreforkRung(
        choose_rung(trust_workspace=False), ["hillclimb.harness.candidate.preload"], thread_variables()
    ) as made:
        yield made


@pytest.mark.slow(3)
@pytest.mark.parametrize("extra", [gpu_cases.NO_TAIL, 0, 500])
@pytest.mark.parametrize("kind", gpu_cases.KINDS)
def test_every_kernel_compiles_for_hopper(rung: PreforkRung, kind: str, extra: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    side = Side(tree=str(gpu_cases.write_workspace(tmp_path / "tree", kind, extra, "a comment")))
    dress = LaunchSpec(tensors="meta", architecture=90, preload=("torch", "triton"))
    with CandidateProcess(rung, side, "kernel.py:run", dress, ProcessLimits(60, 1, 4 << 30)) as process:
        process.begin_precompile({"main": signature(kind)})
        told = process.finish_precompile()
    assert told["skipped"] == {}
    assert told["launches"] == (1 if extra == gpu_cases.NO_TAIL else 2)
    kernels = {kernel["name"]: kernel for kernel in told["kernels"]}
    assert set(kernels) == {FIRST[kind]} | (set() if extra == gpu_cases.NO_TAIL else {"chain"})
    assert all(kernel["stack"] == 0 for kernel in kernels.values()), "nothing spills"
    if extra > 0:
        assert kernels["chain"]["warps"] == 1


INTERPRET = """
import importlib.util, json, sys
import torch
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error

for contract_file, *kernels in json.loads(sys.argv[1]):
    contract = load_contract(__import__("pathlib").Path(contract_file), dtypes=TORCH_DTYPES)
    problem = contract.problems["main"]
    inputs = contract.inputs(problem, "normal", torch.Generator().manual_seed(3))
    expected = expected_outputs(contract, problem, inputs, 4.0)
    for file in kernels:
        spec = importlib.util.spec_from_file_location("kernel", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        outputs = {k: torch.full(s.shape, float("nan"), dtype=s.dtype) for k, s in contract.outputs(problem).items()}
        module.run(*inputs.values(), *outputs.values())
        print(worst_error(outputs, expected))
"""


@pytest.mark.slow(7)
def test_every_kernel_is_right_with_the_tail_and_without(tmp_path: Path) -> None:
    """Walked through by Triton's interpreter: the planted steps change nothing but the time.

    The product is taken of float16, since the interpreter multiplies the bits of bfloat16 as whole numbers (3.9).
    """
    jobs = []
    for kind in gpu_cases.KINDS:
        file = gpu_cases.write_case(tmp_path, kind, 0.0025) / "contract.py"
        file.write_text(file.read_text().replace(*SMALLER[kind]))
        trees = [
            gpu_cases.write_workspace(tmp_path / f"{kind}-{e}", kind, e, "")
            for e in (gpu_cases.NO_TAIL, 0, 7)
        ]
        jobs.append([str(file), *(str(tree / "kernel.py") for tree in trees)])
        for path in jobs[-1] if kind == "gemm" else ():
            source = Path(path).read_text().replace(".bfloat16()", ".half()")
            Path(path).write_text(source.replace("bfloat16", "float16"))
    done = subprocess.run(
        [sys.executable, "-c", INTERPRET, json.dumps(jobs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    shares = [float(line) for line in done.stdout.split()]
    assert len(shares) == 9
    assert all(0 < share <= 1 for share in shares), str(shares)
    assert all(len(set(shares[i : i + 3])) == 1 for i in (0, 3, 6))


def test_a_comment_makes_another_source_of_the_same_kernel(tmp_path: Path) -> None:
    one, other = (gpu_cases.write_workspace(tmp_path / c, "small", 5, c) / "kernel.py" for c in "ab")
    assert one.read_text() != other.read_text()
    assert one.read_text().splitlines()[:-1] == other.read_text().splitlines()[:-1]


def options(**changed: Any) -> argparse.Namespace:
    plain = {"aa": 4, "planted": [2], "losers": 0, "effects": [0.01, 0.02], "condition": "quiet"}
    return argparse.Namespace(**{**plain, **changed})


def row(what: str, effect: float = 0.0, verdict: str = "slower", **more: Any) -> dict[str, Any]:
    plain = {"what": what, "effect": effect, "condition": "quiet", "verdict": verdict, "confirmed": False}
    return {**plain, "seconds": 2.0, "dropped": 0, **more}


def kept(effect: float, estimate: float, low: float, high: float) -> dict[str, Any]:
    speedup = {"estimate": estimate, "low": low, "high": high}
    return row("planted", effect, "kept", confirmed=True, speedup=speedup, confirm_dropped=2)


def test_all_kinds_of_candidates_have_their_turn() -> None:
    jobs = list(gpu_error_rates._jobs({"rows": []}, options()))
    counts = Counter((job["what"], job["effect"]) for job in jobs)
    assert counts == {("aa", 0.0): 4, ("planted", 0.01): 2, ("planted", 0.02): 2}
    assert len({(job["what"], job["effect"]) for job in jobs[:3]}) == 3, "one of each, first of all"
    for _, group in itertools.groupby(
        sorted(jobs, key=lambda j: (j["what"], j["effect"])), lambda j: j["what"]
    ):
        assert all(job["condition"] == "quiet" and job["i"] >= 1 for job in group)


def test_it_goes_on_where_it_stopped() -> None:
    jobs = list(gpu_error_rates._jobs({"rows": []}, options()))
    for done in range(len(jobs) + 1):
        rows = [row(job["what"], job["effect"]) for job in jobs[:done]]
        assert list(gpu_error_rates._jobs({"rows": rows}, options())) == jobs[done:]
    assert len(list(gpu_error_rates._jobs({"rows": rows}, options(condition="heat")))) == len(jobs)


def test_it_goes_on_with_other_effects() -> None:
    rows = [row("planted", 0.05), row("aa")]
    jobs = list(gpu_error_rates._jobs({"rows": rows}, options()))
    assert len(jobs) == 7


def test_alpha_is_spent_over_what_counts_as_one_run() -> None:
    rows = [
        row("aa", confirmed=True),
        row("aa"),
        row("aa", confirmed=True, condition="heat"),
        kept(0.01, 1.01, 1.0, 1.02),
        kept(0.02, 1.02, 1.0, 1.03),
    ]
    count = gpu_error_rates._confirmations
    job = {"what": "aa", "effect": 0.0, "condition": "quiet", "i": 9}
    assert count(rows, job) == 1
    assert count(rows, {**job, "condition": "heat"}) == 1
    assert count(rows, {**job, "what": "planted", "effect": 0.01}) == 1
    assert count(rows, {**job, "what": "planted", "effect": 0.05}) == 0
    assert count([], job) == 0


def test_the_summary_counts_each_kind_apart() -> None:
    rows = [row("aa", seconds=float(n), dropped=1, confirmed=n == 3) for n in range(1, 6)]
    rows += [row("aa", verdict="kept", condition="heat", confirmed=True)]
    rows += [row("loser", 0.01)]
    rows += [kept(0.01, 1.010, 1.008, 1.012), kept(0.01, 1.012, 1.0105, 1.014), kept(0.01, 1.009, 1.0, 1.02)]
    rows += [row("planted", 0.01, "no_proven_gain"), row("planted", 0.02)]
    calibration = [{"planned": 0.01, "effect": 0.0099}, {"planned": 0.02, "effect": 0.021}]
    lines = gpu_error_rates.summarise({"rows": rows, "calibration": calibration})
    quiet, heat, loser, planted, missed = json.loads(json.dumps(lines))
    assert {k: quiet[k] for k in ("condition", "what", "effect")} == {
        "condition": "quiet",
        "what": "aa",
        "effect": 0,
    }
    assert (quiet["candidates"], quiet["kept"], quiet["confirmed"]) == (5, 0, 1)
    assert (quiet["median_seconds"], quiet["dropped_blocks"], quiet["verdicts"]) == (3.0, 5, {"slower": 5})
    assert quiet["kept_upper_95"] == pytest.approx(1 - 0.05 ** (1 / 5), abs=1e-5)
    assert (heat["condition"], heat["kept"], heat["kept_upper_95"]) == ("heat", 1, 1.0)
    assert (loser["what"], loser["kept"]) == ("loser", 0)
    assert (planted["kept"], planted["candidates"]) == (3, 4)
    assert planted["verdicts"] == {"kept": 3, "no_proven_gain": 1}
    assert (planted["true_speedup"], planted["median_speedup"]) == (1.0099, 1.01)
    assert planted["intervals_holding_it"] == 2
    assert planted["dropped_blocks"] == 6
    assert "kept_upper_95" not in planted
    assert "true_speedup" not in missed
    assert missed["verdicts"] == {"slower": 1}
