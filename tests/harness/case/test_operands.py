"""What a contract may say of its operands: 0-d, empty, strided, changed in place, counted in part; slips are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.case.operands import are_equal, bytes_of
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.parity import describe_error, expected_outputs, worst_error
from hillclimb.harness.errors import CaseError

HEAD = """
import torch
from hillclimb.harness.case.contract import Contract as Base, Spec, Work

class Contract(Base):
    problems = {"one": {"n": 6, "k": 4}}
    distributions = ("normal", "other")
    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], problem["k"], generator=generator)
        X
        return {"x": x}
    def outputs(self, problem):
        return {OUTPUTS}
    def reference(self, problem, inputs):
        return {name: inputs["x"].double() + 1 for name in self.outputs(problem)}
    def attainable(self, problem, inputs):
        return {name: inputs["x"] + 1 for name in self.outputs(problem)}
    def work(self, problem):
        return Work(flops=1, bytes=BYTES)
"""
PLAIN = '"y": Spec((6, 4), torch.float32)'


def write(folder: Path, x: str = "", outputs: str = PLAIN, size: str = "1", more: str = "") -> Path:
    path = folder / "contract.py"
    text = HEAD.replace("        X\n", f"        {x}\n").replace("OUTPUTS", outputs).replace("BYTES", size)
    path.write_text(text + more)
    return path


def check(path: Path) -> None:
    check_contract(load_contract(path), path)


@pytest.mark.parametrize(
    ("x", "outputs", "size"),
    [
        ("x = x.T", '"y": Spec((4, 6), torch.float32)', "1"),
        ("x = x.T", '"y": Spec((4, 6), torch.float32, strides=(1, 4))', "1"),
        ("x = x.T", '"x": Spec((4, 6), torch.float32, strides=(1, 4))', "1"),
        ("x = x[:, 1:3]", '"y": Spec((6, 2), torch.float32, strides=(1, 6))', "1"),
        ("x = x[:, 1:3]", '"x": Spec((6, 2), torch.float32, strides=(4, 1))', "1"),
        ("x = x[:, :1]", '"x": Spec((6, 1), torch.float32, strides=(4, 9))', "1"),
        ("x = x[:1].expand(1, 4)", '"y": Spec((1, 4), torch.float32)', "1"),
        ("x = x.sum()", '"y": Spec((), torch.float32)', "1"),
        ("x = x.sum()", '"x": Spec((), torch.float32)', "1"),
        ("x = x[:0]", '"y": Spec((0, 4), torch.float32)', "0"),
        ("x = x[:0].T", '"x": Spec((4, 0), torch.float32)', "0"),
        ("x = torch.arange(12.).as_strided((2, 3), (3, 2))", '"y": Spec((2, 3), torch.float32)', "1"),
    ],
)
def test_what_may_be_handed_over(tmp_path: Path, x: str, outputs: str, size: str) -> None:
    check(write(tmp_path, x, outputs, size))


@pytest.mark.parametrize(
    ("x", "outputs", "key", "problem"),
    [
        ("x = x[:1].expand(6, 4)", PLAIN, "inputs(one, normal)", "[0, 1], by which elements share memory"),
        ("x = torch.arange(9.).as_strided((3, 3), (2, 2))", PLAIN, "inputs(one, normal)", "share memory"),
        (
            "x = x if distribution == 'normal' else x.T.contiguous().T",
            PLAIN,
            "inputs(one, other)",
            "gives x: float32[6, 4] of strides [1, 6], where an earlier call",
        ),
        ("", '"y": Spec((6, 4), torch.float32, strides=(8, 1))', "outputs(one)", "leave gaps or overlap"),
        ("", '"y": Spec((6, 4), torch.float32, strides=(0, 1))', "outputs(one)", "leave gaps or overlap"),
        ("", '"y": Spec((6, 4), torch.float32, strides=(1,))', "outputs(one)", "the strides (1,)"),
        ("", '"y": Spec((6, 4), torch.float32, strides=[4, 1])', "outputs(one)", "the strides [4, 1]"),
        ("", '"y": Spec((6, 4), torch.float32, strides=(4, -1))', "outputs(one)", "the strides (4, -1)"),
        ("", '"x": Spec((6, 4), torch.float64)', "outputs(one)", "the input of that name, which it is"),
        ("", '"x": Spec((4, 6), torch.float32)', "outputs(one)", "the input of that name, which it is"),
        ("x = x.T", '"x": Spec((4, 6), torch.float32)', "outputs(one)", "strides=(1, 4)"),
        ("", '"x": Spec((6, 4), torch.float32, strides=(1, 6))', "outputs(one)", "strides=(1, 6)"),
        ("", '"y": Spec((6, -4), torch.float32)', "outputs(one)", "the shape (6, -4)"),
    ],
)
def test_slips_are_told_with_the_call(tmp_path: Path, x: str, outputs: str, key: str, problem: str) -> None:
    with pytest.raises(CaseError) as caught:
        check(write(tmp_path, x, outputs))
    assert caught.value.key == f"Contract.{key}"
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_call_moves_bytes_unless_its_outputs_are_empty(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="bytes=0"):
        check(write(tmp_path, size="0"))


COUNTED = """
    def counted(self, problem, inputs, reference):
        return MASKS
"""
HALF = '{"y": torch.arange(24).reshape(6, 4) < 12}'


@pytest.mark.parametrize(
    ("masks", "problem"),
    [
        ('{"z": torch.ones(6, 4, dtype=torch.bool)}', "gives 'z' a mask"),
        ('{"y": torch.ones(6, 4)}', "a mask torch.float32"),
        ('{"y": torch.ones(4, 6, dtype=torch.bool)}', "a mask torch.bool [4, 6]"),
        ("{}", "gives dict, empty"),
        ('{"y": torch.zeros(6, 4, dtype=torch.bool)}', "counts no element of y in any problem"),
    ],
)
def test_a_slip_in_a_mask_is_told(tmp_path: Path, masks: str, problem: str) -> None:
    with pytest.raises(CaseError) as caught:
        check(write(tmp_path, more=COUNTED.replace("MASKS", masks)))
    assert caught.value.key.startswith("Contract.counted")
    assert problem in caught.value.problem


def test_every_call_of_a_problem_masks_the_same_outputs(tmp_path: Path) -> None:
    masks = f"{HALF} if inputs['x'][0, 0] > 0 else None"
    contract = load_contract(write(tmp_path, more=COUNTED.replace("MASKS", masks)))
    problem = contract.problems["one"]
    with pytest.raises(CaseError, match="in every call, all True where everything counts"):
        for value in (1.0, -1.0):
            x = torch.full((6, 4), value)
            contract.counted(problem, {"x": x}, {"y": x.double()})


SPOILED = """
    def reference(self, problem, inputs):
        y = inputs["x"].double() + 1
        y[3:] = float("nan")
        return {"y": y}
    def attainable(self, problem, inputs):
        y = inputs["x"] + 1
        y[3:] = float("inf")
        return {"y": y}
"""


def test_what_does_not_count_may_be_anything_on_either_side(tmp_path: Path) -> None:
    contract = load_contract(write(tmp_path, more=COUNTED.replace("MASKS", HALF) + SPOILED))
    check_contract(contract, tmp_path / "contract.py")
    assert contract.partial(contract.problems["one"], torch.Generator()) == {"y"}
    x = torch.arange(24.0).reshape(6, 4)
    expected = expected_outputs(contract, contract.problems["one"], {"x": x}, 4.0)
    y = x + 1
    y[3:] = float("nan")
    assert worst_error({"y": y}, expected) == 0
    root_mean_square = (torch.arange(12.0) + 1).double().square().mean().sqrt()
    assert float(expected.scale["y"][0, 0]) == pytest.approx(float(root_mean_square))
    y[1, 2] = 99
    assert worst_error({"y": y}, expected) > 1
    assert "output 'y'[1, 2] is 99 and should be 7; 1 of 12 elements" in describe_error({"y": y}, expected)


def test_nan_that_counts_is_refused_all_the_same(tmp_path: Path) -> None:
    spoiled = SPOILED.replace("[3:]", "[2:]")
    with pytest.raises(CaseError, match="'y' holds NaN"):
        check(write(tmp_path, more=COUNTED.replace("MASKS", HALF) + spoiled))
    spoiled = SPOILED.replace('y[3:] = float("inf")', 'y[2:] = float("inf")')
    with pytest.raises(CaseError, match="'y' infinite elsewhere"):
        check(write(tmp_path, more=COUNTED.replace("MASKS", HALF) + spoiled))


WHOLE = """
    def inputs(self, problem, distribution, generator):
        return {"x": torch.zeros(100, dtype=torch.int32)}
    def outputs(self, problem):
        return {"y": Spec((100,), torch.int32, may_differ=0.1)}
    def reference(self, problem, inputs):
        return {"y": inputs["x"].long()}
    def attainable(self, problem, inputs):
        return {"y": inputs["x"] + (torch.arange(100) >= 20).int()}
    def counted(self, problem, inputs, reference):
        return {"y": torch.arange(100) < 20}
"""


def test_of_whole_numbers_only_those_that_count_are_counted(tmp_path: Path) -> None:
    contract = load_contract(write(tmp_path, more=WHOLE))
    expected = expected_outputs(
        contract, contract.problems["one"], {"x": torch.zeros(100, dtype=torch.int32)}, 4
    )
    assert expected.differing == {"y": 0.1}, "those that attainable misses do not count"
    y = torch.full((100,), -7, dtype=torch.int32)
    y[:20] = 0
    y[:2] = 1
    assert worst_error({"y": y}, expected) <= 1, "2 of 20"
    y[2] = 1
    assert worst_error({"y": y}, expected) > 1, "3 of 20, which are 3 % of all"


def test_an_own_rule_is_asked_for_what_counts_alone(tmp_path: Path) -> None:
    own = '    def errors(self, problem, inputs, outputs):\n        return {"y": (outputs["y"] - 1).abs() * 9}\n'
    contract = load_contract(write(tmp_path, more=COUNTED.replace("MASKS", HALF) + own))
    expected = expected_outputs(contract, contract.problems["one"], {"x": torch.zeros(6, 4)}, 4.0)
    y = torch.ones(6, 4)
    y[4] = float("nan")
    assert worst_error({"y": y}, expected) == 0
    y[0, 0] = 2
    assert worst_error({"y": y}, expected) == 9


@pytest.mark.parametrize("shape", [(), (1,), (3, 4)])
def test_zero_dimensional_errors_are_described(tmp_path: Path, shape: tuple[int, ...]) -> None:
    contract = load_contract(
        write(tmp_path, f"x = torch.zeros({shape})", f'"y": Spec({shape}, torch.float32)')
    )
    expected = expected_outputs(contract, contract.problems["one"], {"x": torch.zeros(shape)}, 4.0)
    assert describe_error({"y": torch.full(shape, 5.0)}, expected).startswith(
        "output 'y' is 5" if shape == () else "output 'y'[0"
    )


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(10.0)[::5][:1],
        torch.arange(8.0)[::2],
        torch.full((2, 2), float("nan"), dtype=torch.bfloat16).T,
    ],
)
def test_bytes_are_those_of_all_elements_in_order(tensor: torch.Tensor) -> None:
    assert bytes_of(tensor).numel() == tensor.numel() * tensor.itemsize
    assert are_equal(tensor, tensor.clone(memory_format=torch.contiguous_format))
    if tensor.numel():
        other = tensor.clone()
        other.view(-1)[-1:].fill_(7) if other.is_contiguous() else other.select(0, -1).fill_(7)
        assert not are_equal(tensor, other)


def test_a_suite_may_not_time_what_is_empty(tmp_path: Path) -> None:
    from hillclimb.harness.case.case import Case
    from tests.fakes.cases import CONTRACT, write_case

    folder = write_case(tmp_path)
    (folder / "contract.py").write_text(CONTRACT.replace('"timed": {"n": 20_000}', '"timed": {"n": 0}'))
    case = Case(folder)
    contract = load_contract(case.contract_file)
    bench = DuelFactory(case, contract, None, None, None)  # type: ignore[arg-type]
    with pytest.raises(CaseError, match="'timed' has empty outputs alone") as caught:
        bench.check_suites()
    assert caught.value.file.endswith("main.yaml")
