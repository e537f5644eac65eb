"""The Triton demos and the candidates in other languages on a real GPU: right, with room above them, compiled once.

Prints what it measured (`pytest -s`). Every kernel runs in a process of its own: knobs are read at import.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cases.workspace import CASES

pytestmark = pytest.mark.gpu

ROOT = CASES.parent
CANDIDATES = ROOT / "tests" / "candidates"

SETUP = """
import json, sys, time
from pathlib import Path
import torch
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error

case = Case(Path(sys.argv[1]))
contract = load_contract(case.contract_file, "cuda", TORCH_DTYPES)
sys.path.insert(0, sys.argv[2])

def drawn(name, distribution, seed):
    problem = contract.problems[name]
    inputs = contract.inputs(problem, distribution, torch.Generator("cuda").manual_seed(seed))
    specs = contract.outputs(problem)
    outputs = {k: torch.full(s.shape, float("nan"), dtype=s.dtype, device="cuda") for k, s in specs.items()}
    return inputs, outputs

def shapes(name):
    inputs, outputs = drawn(name, contract.distributions[0], 0)
    return [(k, list(t.shape), str(t.dtype).removeprefix("torch.")) for k, t in (inputs | outputs).items()]
"""

PARITY = (
    SETUP
    + """
from kernel import run
shares = {}
for name, problem in contract.problems.items():
    for distribution in contract.distributions:
        inputs, outputs = drawn(name, distribution, 7)
        before = {k: v.clone() for k, v in inputs.items()}
        run(*inputs.values(), *outputs.values())
        torch.cuda.synchronize()
        assert all(torch.equal(before[k], v) for k, v in inputs.items())
        expected = expected_outputs(contract, problem, inputs, case.settings.gate.error_budget)
        shares[f"{name}/{distribution}"] = worst_error(outputs, expected)
print("ANSWER" + json.dumps(shares))
"""
)

TIME = (
    SETUP
    + """
from kernel import run
SLOTS = 24
name = case.suites[case.settings.objective.suite].problems[0]
start = time.perf_counter()
slots = [drawn(name, case.suites[case.settings.objective.suite].distribution, i) for i in range(SLOTS)]
torch.cuda.synchronize()
drawing = (time.perf_counter() - start) / SLOTS
calls = [(*inputs.values(), *outputs.values()) for inputs, outputs in slots]
run(*calls[0])
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for arguments in calls:
        run(*arguments)
seconds = []
for _ in range(20):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    graph.replay()
    last.record()
    last.synchronize()
    seconds.append(first.elapsed_time(last) / 1000 / SLOTS)
moved = contract.work(contract.problems[name]).bytes
told = {"us": min(seconds) * 1e6, "GB/s": moved / min(seconds) / 1e9, "drawing_ms": drawing * 1e3}
print("ANSWER" + json.dumps(told))
"""
)

AHEAD = (
    SETUP
    + """
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver, compile_only
from hillclimb.harness.channel.layout import CallSignature
problems = {name: CallSignature(shapes(name)) for name in contract.problems}
use_compile_only_driver(torch.cuda.get_device_capability()[0] * 10 + torch.cuda.get_device_capability()[1])
from kernel import run
answer = compile_only(run, problems, case.settings.cuda.architecture)
print("ANSWER" + json.dumps({"kernels": len(answer["kernels"]), "skipped": answer["skipped"]}))
"""
)

START: dict[str, str] = {}
SETTINGS: dict[str, list[dict[str, str]]] = {
    "triton_softmax": [
        START,
        {"SX_ALGORITHM": "online", "SX_BLOCK": "4096", "SX_WARPS": "8", "SX_LANES": "1"},
        {"SX_ALGORITHM": "passes", "SX_BLOCK": "2048", "SX_WARPS": "4", "SX_LANES": "1", "SX_STAGES": "3"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "4"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "8"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "16", "SX_EXP2": "1"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "8", "SX_LAST": "evict_first", "SX_STORE": "evict_first"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "8", "SX_WAVES": "4", "SX_STAGES": "3"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "4", "SX_WAVES": "8", "SX_STAGES": "2", "SX_EXP2": "1"},
        {"SX_ALGORITHM": "whole", "SX_WARPS": "8", "SX_WAVES": "2", "SX_ROWS": "2", "SX_STAGES": "2"},
    ],
    "triton_rmsnorm": [
        START,
        {"RMS_ALGORITHM": "looped", "RMS_BLOCK": "4096", "RMS_WARPS": "8", "RMS_LANES": "1"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "4"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "8"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "16", "RMS_STORE": "evict_first"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "8", "RMS_WAVES": "4", "RMS_EARLY": "1", "RMS_STAGES": "3"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "8", "RMS_WAVES": "4", "RMS_EARLY": "1"},
        {"RMS_ALGORITHM": "whole", "RMS_WARPS": "8", "RMS_WAVES": "2", "RMS_ROWS": "2", "RMS_EARLY": "1"},
    ],
}


TOGETHER = 5
"""Settings whose results are checked at the same time; each has a process of its own, which imports for seconds."""


def execute(script: str, case: str, workspace: Path, knobs: dict[str, str], cache: Path) -> Any:
    """The answer of a fresh process. It shares the caches in `cache` with others that are given the same."""
    folder = CASES / "demo" / case
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(workspace)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **knobs},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.split("ANSWER")[1])


def workspace_of(case: str) -> Path:
    return CASES / "demo" / case / "workspace"


def label(knobs: dict[str, str]) -> str:
    return " ".join(f"{name.split('_', 1)[1]}={value}" for name, value in knobs.items()) or "start"


@pytest.mark.parametrize("case", sorted(SETTINGS))
def test_every_setting_is_right_for_every_problem(case: str, tmp_path: Path) -> None:
    def judged(knobs: dict[str, str]) -> Any:
        return execute(PARITY, case, workspace_of(case), knobs, tmp_path)

    with ThreadPoolExecutor(TOGETHER) as pool:
        found = list(pool.map(judged, SETTINGS[case]))
    for knobs, shares in zip(SETTINGS[case], found, strict=True):
        worst = max(shares, key=shares.__getitem__)
        print(f"{case} {label(knobs)}: worst {shares[worst]:.2f} of the budget at {worst}")
        assert shares[worst] < 0.6


@pytest.mark.parametrize("case", sorted(SETTINGS))
def test_there_is_room_above_the_start(case: str, tmp_path: Path) -> None:
    figures = {}
    for knobs in SETTINGS[case][:1] + SETTINGS[case][3:6]:
        told = execute(TIME, case, workspace_of(case), knobs, tmp_path)
        figures[label(knobs)] = told["us"]
        print(
            f"{case} {label(knobs)}: {told['us']:.2f} us, {told['GB/s']:.0f} GB/s, {told['drawing_ms']:.2f} ms a draw"
        )
    assert min(figures.values()) < 0.75 * figures["start"]


@pytest.mark.parametrize("case", sorted(SETTINGS))
@pytest.mark.parametrize("which", [0, -1], ids=["start", "fast"])
def test_what_was_compiled_ahead_is_not_compiled_again(case: str, which: int, tmp_path: Path) -> None:
    knobs, workspace = SETTINGS[case][which], workspace_of(case)
    ahead = execute(AHEAD, case, workspace, knobs, tmp_path)
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    execute(PARITY, case, workspace, knobs, tmp_path)
    fresh = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} - before
    print(f"{case} {label(knobs)}: {ahead}, new files in the real run: {sorted(map(str, fresh))}")
    assert ahead["skipped"] == {}
    assert not [path for path in fresh if path.suffix in (".cubin", ".json", ".ptx")]
    assert not fresh, "the launcher or the driver's own module was built again"


@pytest.mark.parametrize("language", ["triton", "cuda_cpp", "ptx", "cute_dsl"])
def test_each_language_is_right_and_can_be_captured(language: str, tmp_path: Path) -> None:
    if language == "cute_dsl" and importlib.util.find_spec("cutlass") is None:
        pytest.skip("nvidia-cutlass-dsl is not installed")
    workspace = tmp_path / "workspace"
    shutil.copytree(workspace_of("triton_softmax"), workspace)
    shutil.copytree(CANDIDATES / language, workspace, dirs_exist_ok=True)
    shares = execute(PARITY, "triton_softmax", workspace, {}, tmp_path / "cache")
    told = execute(TIME, "triton_softmax", workspace, {}, tmp_path / "cache")
    print(
        f"{language}: worst {max(shares.values()):.2f} of the budget, {told['us']:.2f} us, {told['GB/s']:.0f} GB/s"
    )
    assert max(shares.values()) < 0.7
