"""A contract that does not end, or misspells a hook, is told with file, method and line."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.errors import CaseError

CONTRACT = """
import time
import torch
from hillclimb.harness.case.contract import Contract as Base, Spec, Work

class Contract(Base):
    problems = {"one": {"n": 4}}
    distributions = ("normal",)

    def inputs(self, problem, distribution, generator):
        return {"x": torch.randn(problem["n"], generator=generator)}

    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": inputs["x"].double()}

    def attainable(self, problem, inputs):
        return {"y": inputs["x"].clone()}

    def scale(self, problem, inputs, reference):
        return {"y": reference["y"].abs() + 1}

    def work(self, problem):
        return Work(4, 32)
"""

LOOPS = {
    "a loop": "while True: pass",
    "a loop that catches everything": """while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass""",
    "a loop that catches even that": """for _ in range(10**9):
            try:
                time.sleep(0.01)
            except BaseException:
                if _ > 3: raise""",
    "sleep": "time.sleep(1000)",
    "a loop around torch": "while True: torch.ones(3).sum()",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "contract.py"
    path.write_text(text)
    return path


def looping(loop: str) -> str:
    head = "    def reference(self, problem, inputs):\n"
    return CONTRACT.replace(head, f"{head}        {loop}\n")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_call_that_does_not_end_is_named(tmp_path: Path, loop: str) -> None:
    path = write(tmp_path, looping(LOOPS[loop]))
    contract = load_contract(path, call_seconds=0.3)
    began = time.monotonic()
    with pytest.raises(CaseError) as caught:
        check_contract(contract, path)
    assert time.monotonic() - began < 20
    said = str(caught.value)
    assert said.startswith(f"{path}: Contract.reference: has not ended after 0.3s; it is in line 1")
    assert said.endswith("end that loop, or raise gate.contract_seconds in case.yaml")


def test_a_module_that_does_not_end_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"Contract: has not ended after 0\.3s; it is in line 1"):
        load_contract(write(tmp_path, "while True: pass\n"), call_seconds=0.3)


def test_a_timer_around_a_call_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, CONTRACT)
    before, seen = signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)
    check_contract(load_contract(path), path)
    assert signal.getsignal(signal.SIGALRM) is seen
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(before[0])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("atributes", "attributes"),
        ("attribute", "attributes"),
        ("scales", "scale"),
        ("refrence", "reference"),
        ("Vary", "vary"),
        ("excuesd", "excused"),
        ("domain", "domains"),
    ],
)
def test_a_misspelt_hook_is_named(tmp_path: Path, name: str, meant: str) -> None:
    path = write(tmp_path, f"{CONTRACT}\n    def {name}(self, *arguments):\n        return None\n")
    with pytest.raises(CaseError) as caught:
        load_contract(path)
    assert str(caught.value) == (
        f"{path}: Contract.{name}: is no hook of a contract, so nothing calls it; did you mean {meant!r}? "
        f"A helper of your own needs another name, such as _{name}"
    )


def test_a_misspelt_hook_that_every_contract_needs_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, CONTRACT.replace("def reference", "def refrence"))
    with pytest.raises(CaseError, match=r"Contract\.refrence: is no hook .* did you mean 'reference'"):
        load_contract(path)


@pytest.mark.parametrize("name", ["_scales", "rows", "reference_of", "make_inputs", "tolerance", "errors_of"])
def test_helpers_of_ones_own_are_fine(tmp_path: Path, name: str) -> None:
    load_contract(write(tmp_path, f"{CONTRACT}\n    def {name}(self):\n        return None\n"))
