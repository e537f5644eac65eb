"""A case as stamped works: valid, right under every knob setting, admitted by its own policy."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch

from hillclimb.agent.stamp import TEMPLATES, create_case
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.channel.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.knobs.knobs import KnobValue, load_knobs, to_environment
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.profile.tool_run import MAX_PROBLEM_BYTES
from tests.cases.interpreted import small, walk
from tests.cases.workspace import CASES, call, checks, import_file, kernel, load_case

DEVICES: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")

QUICK_BYTES = 16 << 20
"""What the largest problem moves that is drawn on a CPU without a wait."""

VALUES: list[dict[str, KnobValue]] = [
    {"RS_BLOCK": block, "RS_FASTMATH": fast}
    for block, fast in itertools.product((64, 512, 8192), (False, True))
]

COMPILE = """
import json, sys
from pathlib import Path
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver, compile_only
from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.case.checked import load_contract
use_compile_only_driver(90)
folder = Path(sys.argv[1])
contract = load_contract(folder / "contract.py")
sys.path.insert(0, str(folder / "workspace"))
from kernel import run

def signature(rows, columns):
    return CallSignature((("x", (rows, columns), "float32"), ("s", (rows,), "float32")))

problems = {name: signature(**problem) for name, problem in contract.problems.items()}
print("ANSWER" + json.dumps([len(problems), compile_only(run, problems, 90)]))
"""


@dataclass(frozen=True)
class Stamped:
    """A case as it comes from the templates of one device."""

    case: Case
    contract: Contract


def stamped_for(device: Literal["cpu", "cuda"], root: Path) -> Stamped:
    for name in TEMPLATES[device]:
        shutil.copytree(CASES / name, root / "cases" / name)
    folder = create_case(root, "new_model", "new_case", "a model", "", "a machine", device)
    return Stamped(*load_case(folder, NUMPY_DTYPES if device == "cpu" else TORCH_DTYPES))


@pytest.fixture(scope="module", params=DEVICES)
def stamped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stamped:
    return stamped_for(request.param, tmp_path_factory.mktemp("stamped"))


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Stamped:
    return stamped_for("cpu", tmp_path_factory.mktemp("stamped"))


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> Stamped:
    return stamped_for("cuda", tmp_path_factory.mktemp("stamped"))


def named(values: dict[str, KnobValue]) -> str:
    return "-".join(map(str, values.values())) or "defaults"


@pytest.mark.slow(1, but=["512-False"])
@pytest.mark.parametrize("values", [{}, *VALUES], ids=named)
def test_every_setting_is_right(on_cpu: Stamped, values: dict[str, KnobValue]) -> None:
    with kernel(on_cpu.case, values) as run:
        errors = {check.name: check.error(call(run, check)) for check in checks(on_cpu.contract, seed=4)}
    assert max(errors.values()) < 2, errors


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    "values", [{}, {"RS_BLOCK": 128, "RS_WARPS": 16}, {"RS_BLOCK": 4096, "RS_WARPS": 1}], ids=named
)
def test_every_setting_is_right_when_interpreted(on_cuda: Stamped, values: dict[str, KnobValue]) -> None:
    limit = 40_000
    shares = walk(on_cuda.case.folder, limit, to_environment(values))
    assert len(shares) == len(small(on_cuda.contract, limit)) * len(on_cuda.contract.distributions)
    assert max(shares.values()) < 0.5, shares


@pytest.mark.slow(5)
def test_every_problem_compiles_where_registers_are_fewest(on_cuda: Stamped, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    widest = {"RS_BLOCK": "4096", "RS_WARPS": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(on_cuda.case.folder)],
        capture_output=True,
        text=True,
        cwd=CASES.parent,
        env={**kept, **widest},
    )
    assert done.returncode == 0, done.stderr
    problems, answer = json.loads(done.stdout.split("ANSWER")[1])
    assert (answer["ok"], answer["skipped"], answer["launches"]) == (True, {}, problems)
    assert all(compiled["registers"] > 0 and compiled["stack"] == 0 for compiled in answer["kernels"])


def test_one_for_a_gpu_fills_it_and_is_checked_without_one(on_cuda: Stamped) -> None:
    contract, suites = on_cuda.contract, on_cuda.case.suites
    interpreted = small(contract)
    assert {columns["columns"] % 2 for columns in interpreted.values()} == {0, 1}
    assert len(interpreted) >= 5
    assert set(suites["small"].problems) <= set(interpreted)
    (large,) = suites["main"].problems
    assert 64 << 20 <= contract.work(contract.problems[large]).bytes < MAX_PROBLEM_BYTES


def test_its_settings_are_a_gpus(on_cuda: Stamped) -> None:
    ours, demo = on_cuda.case.settings, Case(CASES / "demo" / "triton_softmax").settings
    assert ours.device == "cuda"
    assert {"torch", "triton"} <= set(ours.policy.imports) <= set(demo.policy.imports)
    assert ours.objective.minimum_effect == demo.objective.minimum_effect
    assert ours.duel == demo.duel


def test_its_own_policy_admits_it(stamped: Stamped) -> None:
    check_policy(stamped.case.workspace, stamped.case.settings.policy)


def test_its_suites_name_problems_of_the_contract(stamped: Stamped) -> None:
    suites, contract = stamped.case.suites.values(), stamped.contract
    assert {name for suite in suites for name in suite.problems} <= set(contract.problems)
    assert {suite.distribution for suite in suites} <= set(contract.distributions)


def test_a_wrong_kernel_is_far_outside_the_budget(stamped: Stamped) -> None:
    for name, problem in small(stamped.contract, QUICK_BYTES).items():
        for distribution in stamped.contract.distributions:
            if problem["columns"] == 1:
                continue
            inputs = stamped.contract.inputs(problem, distribution, torch.Generator().manual_seed(4))
            expected = expected_outputs(
                stamped.contract, problem, inputs, stamped.case.settings.gate.error_budget
            )
            wrong = inputs["x"][:, 1:] if distribution != "wide" else inputs["x"] * 0
            assert worst_error({"s": wrong.sum(dim=1)}, expected) > 10, (name, distribution)


@pytest.mark.slow(4)
def test_its_local_tests_pass(stamped: Stamped, tmp_path: Path) -> None:
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, stamped.case.workspace / "tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_its_contract_keeps_its_promises(stamped: Stamped) -> None:
    check_contract(stamped.contract, stamped.case.contract_file, small(stamped.contract, QUICK_BYTES))


KNOBS = """
C: {type: choice, choices: [true, false, a, 2, 0.5], default: a}
B: {type: bool, default: true}
F: {type: float, low: 0, high: 1, default: 0.25}
I: {type: int, low: 0, high: 9, default: 3}
"""


def test_its_knobs_are_the_demos_and_read_whatever_the_judge_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (CASES / "_template" / "workspace" / "knobs.py").read_text()
    assert (CASES / "demo" / "cpu_matmul" / "workspace" / "knobs.py").read_text() == source
    (tmp_path / "knobs.yaml").write_text(KNOBS)
    (tmp_path / "knobs.py").write_text(source)
    module = import_file(tmp_path / "knobs.py")
    knobs = load_knobs(tmp_path / "knobs.yaml")
    for name, declared in knobs.items():
        assert module.knob(name) == declared.default
        for value in declared.values() or [0.0, 0.125]:
            monkeypatch.setenv(name, to_environment({name: value})[name])
            assert (module.knob(name), type(module.knob(name))) == (value, type(value))
    monkeypatch.setenv("C", "True")
    with pytest.raises(ValueError, match=r"C is 'True', which is none of \[True, False, 'a', 2, 0\.5\]"):
        module.knob("C")


def test_every_key_of_the_format_is_shown() -> None:
    """The template is the format's documentation by example, so it may not fall behind."""
    text = (CASES / "_template" / "case.yaml").read_text()
    case = Case(CASES / "demo" / "cpu_matmul")
    keys = set()
    for name, value in case.settings.model_dump(by_alias=True).items():
        keys |= {name} | (set(value) if isinstance(value, dict) else set())
    assert [key for key in sorted(keys | {"max_slowdown"}) if f"{key}:" not in text] == []
