"""Keyword arguments of a call: from the contract to the kernel on every path it is called by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.channel.layout import SlotLayout, lay_out
from hillclimb.harness.channel.problem_pack import ProblemPackReader
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.profile.problem_writer import write_problem_pack
from hillclimb.harness.profile.tool_run import draft_problem
from hillclimb.harness.records import GateReport, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import CONTRACT, CUDA_KERNEL, HONEST, write_case, write_cuda_case, write_workspace

TOLD = """
    def attributes(self, problem):
        return {"addend": self.addend(problem), "negate": problem["n"] % 2 == 1, "unit": "one"}

    def addend(self, problem):
        return {37: 1, 1001: -0.5}.get(problem["n"], 3)

    def work(self"""


def tell(folder: Path) -> None:
    """Let the small case's contract have attributes: y = ±(2 x + addend)."""
    contract = (folder / "contract.py").read_text().replace("\n    def work(self", TOLD)
    for result in ('2 * inputs["x"].double() + 1', '2 * inputs["x"] + 1'):
        contract = contract.replace(
            f'{{"y": {result}}}',
            f'{{"y": ({result[:-1]}self.addend(problem)) * (-1 if problem["n"] % 2 else 1)}}',
        )
    (folder / "contract.py").write_text(contract)


def gated(folder: Path, device: Device, kernel: str) -> GateReport:
    side = Side(tree=str(write_workspace(folder.parents[2] / f"side-{len(kernel)}" / "workspace", kernel)))
    judge = CaseJudge(Case(folder), choose_rung(trust_workspace=False), device)
    try:
        return judge.gate(side, lambda progress: None)
    finally:
        judge.close()


KERNEL = (
    HONEST.replace("run(x, y)", "run(x, y, *, addend, negate, unit)")
    + """
    assert type(addend) in (int, float) and type(negate) is bool and unit == "one"
    y += np.float32(addend - 1)
    if negate:
        np.negative(y, out=y)
"""
)


def test_a_kernel_on_the_cpu_is_handed_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = write_case(tmp_path, KERNEL)
    tell(folder)
    assert gated(folder, open_device("cpu"), KERNEL).passed
    assert not gated(folder, open_device("cpu"), KERNEL.replace("addend - 1", "0")).passed


@pytest.mark.slow(5)
def test_so_is_one_that_is_compiled_and_interpreted(tmp_path: Path) -> None:
    """A constant of the kernel: without the attribute it would not even compile."""
    tmp_path.chmod(0o755)
    kernel = CUDA_KERNEL.replace("n, BLOCK:", "n, ADDEND: tl.constexpr, SIGN: tl.constexpr, BLOCK:")
    kernel = kernel.replace(
        "2 * tl.load(x + at, mask=at < n) + 1", "SIGN * (2 * tl.load(x + at, mask=at < n) + ADDEND)"
    )
    kernel = kernel.replace("def run(x, y):", "def run(x, y, addend, negate, unit):")
    kernel = kernel.replace("x.numel(), BLOCK", "x.numel(), addend, -1 if negate else 1, BLOCK")
    folder = write_cuda_case(tmp_path, kernel)
    tell(folder)
    report = gated(folder, open_device("interpreter"), kernel)
    assert report.passed, report.detail


def test_a_rehearsal_is_handed_them(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    tell(folder)
    contract = load_contract(folder / "contract.py")
    drafted = draft_problem(InputSource(contract, "odd", "normal", SecretRandom(b"x"), "cpu"))
    with write_problem_pack([drafted], "cpu", 1.0) as descriptor:
        (packed,) = ProblemPackReader(descriptor).pack.problems
    assert packed.attributes == {"addend": -0.5, "negate": True, "unit": "one"}


@pytest.mark.parametrize("value", [0, -3, True, 0.1, 1e-300, "mean", 2**70])
def test_a_layout_brings_them_across_as_they_are(value: Any) -> None:
    layout = lay_out([("x", (2,), "float32")], [("y", (2,), "float32")], 1, {"value": value})
    told = SlotLayout.from_json(layout.to_json()).attributes["value"]
    assert (type(told), told) == (type(value), value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("[1]", "gives list"),
        ("{'a b': 1}", "names 'a b'"),
        ("{'lambda': 1}", "names 'lambda'"),
        ("{3: 1}", "names 3"),
        ("{'x': (1, [2])}", "the value (1, [2])"),
        ("{'x': (1, float('nan'))}", "the value (1, nan)"),
        ("{'x': float('nan')}", "the value nan"),
        ("{'x': 1j}", "the value 1j"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_slip_is_told(tmp_path: Path, given: str, problem: str) -> None:
    path = tmp_path / "contract.py"
    path.write_text(CONTRACT + f"\n    def attributes(self, problem):\n        return {given}\n")
    with pytest.raises(CaseError, match="attributes") as caught:
        check_contract(load_contract(path), path)
    assert problem in caught.value.problem
