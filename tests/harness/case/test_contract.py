"""A slip in a user's contract.py is told as one, with file and call; it is no failure of machine or candidate."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.duel.parity import expected_outputs
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Side
from tests.cases.workspace import CASES
from tests.fakes.cases import CONTRACT, HONEST, write_case, write_workspace

INPUTS = 'x = torch.randn(problem["n"], generator=generator)\n'
OUTPUTS = 'return {"y": Spec((problem["n"],), torch.float32)}'
REFERENCE = 'return {"y": 2 * inputs["x"].double() + 1}'
ATTAINABLE = 'return {"y": 2 * inputs["x"] + 1}'
SCALE = 'return {"y": 2 * inputs["x"].double().abs() + 1}'
WORK = 'return Work(flops=2 * problem["n"], bytes=8 * problem["n"])'


def complaint(folder: Path, old: str, new: str) -> CaseError:
    """What is said of the small case's contract after one change."""
    assert CONTRACT.count(old) == 1
    path = folder / "contract.py"
    path.write_text(CONTRACT.replace(old, new))
    with pytest.raises(CaseError) as caught:
        check_contract(load_contract(path), path)
    assert caught.value.file == str(path)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "key", "problem"),
    [
        (INPUTS, "raise KeyError('no')\n", "inputs(small, normal)", "raised KeyError in line 10: 'no'"),
        (INPUTS, "raise SystemExit(3)\n", "inputs(small, normal)", "raised SystemExit in line 10: 3"),
        (INPUTS, "return None\n", "inputs(small, normal)", "gives NoneType"),
        (INPUTS, "return {}\n", "inputs(small, normal)", "empty"),
        (INPUTS, "return {'x': 1.0}\n", "inputs(small, normal)", "gives 'x' a float"),
        (INPUTS, INPUTS + "        x = x.bfloat16()\n", "inputs(small, normal)", "bfloat16, which a kernel"),
        (INPUTS, "x = torch.randn(1).expand(8)\n", "inputs(small, normal)", "strides"),
        (INPUTS, "x = torch.ones(3, requires_grad=True)\n", "inputs(small, normal)", "plain tensor"),
        (INPUTS, "x = torch.randn(problem['n'])\n", "inputs(small, normal)", "for the same seed"),
        ("x *= 1e-6", "x = x[1:]", "inputs(small, tiny)", "gives x: float32[36], where an earlier call"),
        ("x *= 1e-6", "x = x.double()", "inputs(small, tiny)", "gives x: float64[37]"),
        (OUTPUTS, "return 1 / 0", "outputs(small)", "ZeroDivisionError"),
        (OUTPUTS, "return {'y': torch.zeros(1)}", "outputs(small)", "gives 'y' a Tensor"),
        (OUTPUTS, "return {'y': Spec((problem['n'] / 2,), torch.float32)}", "outputs(small)", "(18.5,)"),
        (OUTPUTS, "return {'y': Spec(problem['n'], torch.float32)}", "outputs(small)", "the shape 37"),
        (OUTPUTS, "return {'y': Spec((3,), 'float32')}", "outputs(small)", "the dtype 'float32'"),
        (OUTPUTS, "return {'y': Spec((3,), torch.bfloat16)}", "outputs(small)", "bfloat16"),
        (OUTPUTS, "return {'y': Spec((3,), torch.complex64)}", "outputs(small)", "complex64"),
        (REFERENCE, "return inputs['z']", "reference(small)", "KeyError"),
        (REFERENCE, "return {'z': inputs['x'].double()}", "reference(small)", "gives z: float64[37], where"),
        (REFERENCE, "return {'y': 2 * inputs['x'] + 1}", "reference(small)", "gives y: float32[37], where"),
        (REFERENCE, "return {'y': inputs['x'].double()[1:]}", "reference(small)", "float64[36]"),
        (REFERENCE, "return {'y': inputs['x'].double() * float('nan')}", "reference(small)", "'y' holds NaN"),
        (REFERENCE, "return {'y': inputs['x'].zero_().double()}", "reference", "writes to the inputs"),
        (ATTAINABLE, "return {}", "attainable(small)", "empty"),
        (ATTAINABLE, "return {'y': 2 * inputs['x'].double() + 1}", "attainable(small)", "float64[37]"),
        (ATTAINABLE, "return {'y': (inputs['x'] + 9) ** 90}", "attainable(small)", "'y' infinite elsewhere"),
        (SCALE, "return {'y': inputs['x'].double()}", "scale(small)", "negative"),
        (SCALE, "return {'y': torch.ones(1).double()}", "scale(small)", "float64[1]"),
        (WORK, "return 3", "work(small)", "gives int"),
        (WORK, "return Work(flops=2.5, bytes=3)", "work(small)", "flops=2.5"),
        (WORK, "return Work(flops=2, bytes=0)", "work(small)", "bytes=0"),
        (WORK, "raise NotImplementedError", "work(small)", "NotImplementedError"),
        ('("normal", "offset", "tiny")', '("normal")', "distributions", "is 'normal'"),
        ('("normal", "offset", "tiny")', "()", "distributions", "is ()"),
        ('{"n": 37}', "37", "problems", "'small': 37"),
        ('{"small": {"n": 37}, "odd": {"n": 1001}, "timed": {"n": 20_000}}', "[1]", "problems", "no mapping"),
    ],
)
def test_a_slip_is_told_with_its_call(tmp_path: Path, old: str, new: str, key: str, problem: str) -> None:
    error = complaint(tmp_path, old, new)
    assert error.key.startswith(f"Contract.{key}")
    assert problem in error.problem


def test_contracts_of_the_repository_keep_their_promises() -> None:
    path = CASES / "demo" / "cpu_matmul" / "contract.py"
    check_contract(load_contract(path), path)


def test_what_counts_is_the_source_and_no_code_beside_it(tmp_path: Path) -> None:
    file = write_case(tmp_path) / "contract.py"
    source, changed = CONTRACT, CONTRACT.replace('"small"', '"SMALL"')
    file.write_text(source)
    py_compile.compile(str(file), doraise=True)
    seen = file.stat()
    file.write_text(changed)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert file.stat().st_size == seen.st_size and changed != source
    assert "SMALL" in load_contract(file).problems


def test_a_zero_output_has_a_scale(tmp_path: Path) -> None:
    """The default scale of an output that is all zeros is 0, which is no slip."""
    path = tmp_path / "contract.py"
    path.write_text(CONTRACT.replace("    def scale", "    def unused").replace("+ 1}", "* 0}"))
    contract = load_contract(path)
    check_contract(contract, path)
    inputs = contract.inputs(contract.problems["odd"], "normal", torch.Generator())
    assert expected_outputs(contract, contract.problems["odd"], inputs, 4.0).budget["y"] > 0


@pytest.mark.parametrize("scale", ["0", "1e-290", "1e-20"])
def test_a_scale_that_would_let_anything_pass_is_refused(tmp_path: Path, scale: str) -> None:
    """One element whose errors count for nothing would set the budget of all."""
    path = tmp_path / "contract.py"
    made = f"scale = 2 * inputs['x'].double().abs() + 1; scale[3] = {scale}; return {{'y': scale}}"
    path.write_text(CONTRACT.replace(SCALE, made))
    contract = load_contract(path)
    inputs = contract.inputs(contract.problems["odd"], "normal", torch.Generator().manual_seed(1))
    inputs["x"][3] = 0.1
    with pytest.raises(CaseError, match="element 3 of 'y'"):
        expected_outputs(contract, contract.problems["odd"], inputs, 4.0)
    inputs["x"][3] = 0.5
    assert 0 < expected_outputs(contract, contract.problems["odd"], inputs, 4.0).budget["y"] < 1e-6, (
        "it is exact there"
    )


@pytest.mark.slow(3)
def test_the_judge_tells_it_at_once(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    (folder / "contract.py").write_text(CONTRACT.replace(WORK, "return None"))
    with pytest.raises(CaseError, match=r"contract\.py: Contract\.work\(small\): gives NoneType"):
        LocalJudge(folder, tmp_path / "judge.log")


@pytest.mark.slow(3)
def test_a_slip_that_shows_late_is_told_and_the_judge_lives(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = write_case(tmp_path)
    late = INPUTS + "        if generator.initial_seed() > 9:\n            raise ValueError('late')\n"
    (folder / "contract.py").write_text(CONTRACT.replace(INPUTS, late))
    side = Side(tree=str(write_workspace(tmp_path / "candidate" / "workspace", HONEST)))
    judge = LocalJudge(folder, tmp_path / "judge.log")
    try:
        for _ in range(2):
            with pytest.raises(CaseError, match=r"Contract\.inputs\(.*raised ValueError in line 12: late"):
                judge.gate(side, lambda progress: None)
        assert judge.describe().sandbox
    finally:
        judge.close()
