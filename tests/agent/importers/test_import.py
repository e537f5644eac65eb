"""A small source of each format becomes a case whose baseline its contract accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hillclimb.agent.importers import import_case as import_case_module
from hillclimb.agent.importers.formats.imported import Findings, Plan
from hillclimb.agent.importers.import_case import ImportResult, WantedCase, import_case
from hillclimb.agent.importers.probing.exploration import explore
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.errors import CaseError
from tests.agent.importers import sources
from tests.agent.importers.gating import gate
from tests.agent.importers.test_kernel_tuner import T1


@pytest.fixture(autouse=True)
def run_here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explorations run in this process, which has loaded torch already."""

    def ask_here(plan: Plan, path: Path) -> Findings:
        folder = tmp_path_factory.mktemp("source")
        for name, text in {"source.py": plan.source, **plan.beside}.items():
            (folder / name).write_text(text)
        return explore(plan, folder / "source.py")

    monkeypatch.setattr(import_case_module, "ask", ask_here)


def imported(folder: Path, *given: str, examples: tuple[str, ...] = (), device: str = "") -> ImportResult:
    wanted = WantedCase("demo", "made", "a model", "a machine", device or None)  # type: ignore[arg-type]
    return import_case(folder, given, examples, wanted)


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def says(found: ImportResult, text: str) -> bool:
    return any(text in line for line in found.told)


@pytest.mark.slow(4)
def test_a_kernelbench_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(tmp_path, written(tmp_path, "norm.py", sources.KERNELBENCH))
    case = Case(found.folder)
    contract = load_contract(case.contract_file, "cpu", TORCH_DTYPES)
    assert case.settings.device == "cuda" and case.settings.policy.library_calls
    assert contract.problems["public"] == {"rows": 4096, "width": 512, "height": 256}
    assert {"tiny", "odd"} <= contract.problems.keys()
    assert contract.attributes(contract.problems["public"]) == {"width": 512, "height": 256, "slope": 0.5}
    assert contract.work(contract.problems["public"]).flops == 2 * 4096 * 512 * 256
    assert "weights" in contract.distributions
    assert says(found, "BatchNorm: it takes mean and variance of the batch")
    assert says(found, "policy.library_calls: it is true")
    assert says(found, "tiny, odd: they lower what the operator is made with")
    assert (case.folder / "source.py").read_text() == sources.KERNELBENCH
    assert gate(found.folder, monkeypatch) > 10


@pytest.mark.slow(4)
def test_a_gpu_mode_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "task/task.yml", sources.TASK)
    written(tmp_path, "task/reference.py", sources.REFERENCE)
    written(tmp_path, "helpers.py", sources.HELPERS)
    found = imported(tmp_path, str(tmp_path / "task"))
    case = Case(found.folder)
    contract = load_contract(case.contract_file, "cpu", TORCH_DTYPES)
    assert list(contract.problems) == ["test_1", "test_2", "benchmark_1"]
    assert case.suites["main"].problems == ("benchmark_1",)
    assert list(contract.outputs(contract.problems["test_1"])) == ["result"]
    assert "def run(a, b, result, *, scale):" in (case.workspace / "kernel.py").read_text()
    assert "quietly" not in (case.workspace / "original.py").read_text()
    assert says(found, "check_implementation (rtol=0.01): not carried over")
    assert list(contract.excused) == ["nothing written for sizes that are not listed"]
    assert gate(found.folder, monkeypatch) >= 4


@pytest.mark.slow(4)
def test_a_check_of_its_own_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = "def check_implementation(data, output):\n    return bool((output == output.sort().values).all()), 'no'\n"
    reference = sources.REFERENCE[: sources.REFERENCE.index("check_implementation")] + check
    reference = reference.replace(
        "result[...] = (a + b) * scale", "result[...] = ((a + b) * scale).sort().values"
    )
    written(tmp_path, "task/task.yml", sources.TASK)
    written(tmp_path, "task/reference.py", reference)
    written(tmp_path, "helpers.py", sources.HELPERS)
    found = imported(tmp_path, str(tmp_path / "task"))
    assert says(found, "check_implementation: it is a rule of its own")
    assert gate(found.folder, monkeypatch) >= 4


@pytest.mark.slow(6)
def test_a_flashinfer_definition_with_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"workload": {"axes": {"rows": n}, "inputs": {"eps": {"type": "scalar", "value": 1e-5}}}}
        for n in range(1, 40)
    ]
    written(tmp_path, "definitions/norm/d.json", json.dumps(sources.DEFINITION))
    written(tmp_path, "workloads/norm/scaled_rows_w512.jsonl", "\n".join(map(json.dumps, rows)))
    found = imported(tmp_path, str(tmp_path / "definitions" / "norm" / "d.json"))
    contract = load_contract(found.folder / "contract.py", "cpu", TORCH_DTYPES)
    assert contract.problems["workload_1"] == {"width": 512, "rows": 1, "eps": 1e-5}
    assert contract.problems["workload_6"]["rows"] == 39
    assert says(found, "workloads: 6 of 39 that differ in size are kept")
    assert gate(found.folder, monkeypatch) >= 12


@pytest.mark.slow(3)
def test_a_flashinfer_definition_without_workloads(tmp_path: Path) -> None:
    found = imported(tmp_path, written(tmp_path, "d.json", json.dumps(sources.DEFINITION)))
    assert says(found, "workloads: none were found") and says(found, "eps: no workload gives its value")


@pytest.mark.slow(6)
def test_a_numpy_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(tmp_path, written(tmp_path, "blend.py", sources.NUMPY) + ":blend")
    case = Case(found.folder)
    assert case.settings.device == "cpu" and not case.settings.policy.library_calls
    assert "def run(image, mask, y0, y1, *, strength):" in (case.workspace / "kernel.py").read_text()
    assert gate(found.folder, monkeypatch) > 6


@pytest.mark.slow(4)
def test_examples_that_are_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(tmp_path, written(tmp_path, "wave.py", sources.PLAIN) + ":wave")
    contract = load_contract(found.folder / "contract.py")
    assert contract.problems["example_1"] == {"n0": 600} and contract.problems["example_2"] == {"n0": 40_000}
    assert gate(found.folder, monkeypatch) >= 1


@pytest.mark.slow(3)
def test_examples_that_are_typed_with_a_space_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = written(tmp_path, "space.json", json.dumps(T1))
    function = written(tmp_path, "wave.py", sources.PLAIN.split("EXAMPLES")[0]) + ":wave"
    found = imported(tmp_path, function, space, examples=("x=float32[300,70]", "y=float32[300,70]"))
    case = Case(found.folder)
    assert {"BLOCK", "TILE"} <= set(case.knobs)
    assert load_contract(case.contract_file).problems["public"] == {"n0": 300, "n1": 70}
    assert says(found, "knobs: the baseline reads none of them")
    assert gate(found.folder, monkeypatch) >= 2


@pytest.mark.slow(3)
def test_a_module_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(tmp_path, written(tmp_path, "gate.py", sources.TORCH) + ":Gate", device="cpu")
    case = Case(found.folder)
    assert "torch" in case.settings.policy.modules and case.settings.policy.library_calls
    assert says(found, "mode: in training the module draws random numbers")
    assert gate(found.folder, monkeypatch) >= 4


IGNORING = """
import torch

def shifted(x, gain, bias):
    wide = x * gain + bias
    return wide - wide.mean(dim=0, keepdim=True)

rows = 16

def example_inputs():
    return torch.randn(rows, 24), torch.randn(24), torch.randn(24)
"""


@pytest.mark.slow(3)
def test_what_no_result_depends_on_is_told_and_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = imported(tmp_path, written(tmp_path, "shifted.py", IGNORING) + ":shifted")
    contract = load_contract(found.folder / "contract.py", "cpu", TORCH_DTYPES)
    assert says(found, "bias: its contents change no result")
    assert contract.excused and set(contract.excused.values()) == {"the exact result does not depend on bias"}
    assert gate(found.folder, monkeypatch) >= 4


CONSTANT = """
import torch

def nothing(x):
    return torch.softmax(x.sum(dim=1, keepdim=True), dim=1)

rows = 16

def example_inputs():
    return torch.randn(rows, 24)
"""


@pytest.mark.slow(2)
def test_a_problem_that_proves_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="the same whatever is computed, which proves nothing"):
        imported(tmp_path, written(tmp_path, "nothing.py", CONSTANT) + ":nothing")
