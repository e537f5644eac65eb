"""The Triton demos without a GPU: right under every algorithm, walked through by Triton's interpreter on the CPU."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.knobs.knobs import KnobValue, broken_constraint
from tests.cases.interpreted import small, walk
from tests.cases.workspace import CASES, load_case

NAMES = ("triton_softmax", "triton_rmsnorm")

SETTINGS = [
    ("triton_softmax", {}),
    ("triton_softmax", {"ALGORITHM": "passes", "BLOCK": 1024, "LANES": 1, "ROWS": 4, "EXP2": 1}),
    ("triton_softmax", {"ALGORITHM": "online", "BLOCK": 512, "ROWS": 2, "WAVES": 1, "STAGES": 3}),
    ("triton_softmax", {"ALGORITHM": "online", "BLOCK": 2048, "LANES": 1, "ROWS": 2, "EXP2": 1}),
    ("triton_softmax", {"ALGORITHM": "whole", "BLOCK": 512, "ROWS": 8, "WARPS": 8, "WAVES": 2, "EXP2": 1}),
    ("triton_softmax", {"ALGORITHM": "whole", "WARPS": 16, "LAST": "evict_first", "STORE": "evict_first"}),
    ("triton_rmsnorm", {}),
    ("triton_rmsnorm", {"ALGORITHM": "looped", "BLOCK": 1024, "LANES": 1, "ROWS": 4, "STAGES": 2}),
    ("triton_rmsnorm", {"ALGORITHM": "whole", "ROWS": 2, "WARPS": 8, "WAVES": 1, "EARLY": 1}),
    ("triton_rmsnorm", {"ALGORITHM": "whole", "WARPS": 32, "LAST": "evict_first", "STORE": "evict_last"}),
]


def load(name: str) -> tuple[Case, Contract]:
    return load_case(CASES / "demo" / name, TORCH_DTYPES)


def prefixed(name: str, values: dict[str, object]) -> dict[str, str]:
    prefix = {"triton_softmax": "SX_", "triton_rmsnorm": "RMS_"}[name]
    return {prefix + knob: str(value) for knob, value in values.items()}


@pytest.mark.slow(9)
@pytest.mark.parametrize(
    ("name", "values"),
    SETTINGS,
    ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values())) or "start",
)
def test_every_algorithm_is_right(name: str, values: dict[str, object]) -> None:
    limit = 40_000 if values else MAX_INTERPRETED_BYTES
    shares = walk(CASES / "demo" / name, limit, prefixed(name, values))
    _, contract = load(name)
    assert len(shares) == len(small(contract, limit)) * len(contract.distributions)
    assert max(shares.values()) < 0.6, {at: share for at, share in shares.items() if share >= 0.6}


@pytest.mark.parametrize("name", NAMES)
def test_small_problems_are_many_and_various(name: str) -> None:
    _, contract = load(name)
    columns = [list(problem.values())[1] for problem in small(contract).values()]
    assert len(columns) >= 7
    assert {n % 2 for n in columns} == {0, 1}
    assert min(columns) == 1
    assert max(columns) > 4096


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_keeps_its_promises(name: str) -> None:
    case, contract = load(name)
    check_contract(contract, case.contract_file, small(contract))


@pytest.mark.parametrize("name", NAMES)
def test_suites_and_knobs_fit_the_contract(name: str) -> None:
    case, contract = load(name)
    assert {p for suite in case.suites.values() for p in suite.problems} <= set(contract.problems)
    assert {suite.distribution for suite in case.suites.values()} <= set(contract.distributions)
    assert all(knob.doc for knob in case.knobs.values())
    combinations = list(itertools.product(*(knob.values() or () for knob in case.knobs.values())))
    assert len(combinations) > 10_000


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("triton_softmax", {"SX_ROWS": 16, "SX_BLOCK": 8192}, "SX_ROWS * SX_BLOCK <= 4096 * SX_WARPS"),
        (
            "triton_softmax",
            {"SX_ROWS": 8, "SX_BLOCK": 8192, "SX_WARPS": 32, "SX_STAGES": 4},
            "2 * SX_ROWS * SX_BLOCK * (SX_STAGES - 1) <= 225280",
        ),
        ("triton_rmsnorm", {"RMS_ROWS": 2, "RMS_BLOCK": 4096, "RMS_WARPS": 1}, "<= 4096 * RMS_WARPS"),
        ("triton_rmsnorm", {"RMS_ROWS": 8, "RMS_BLOCK": 8192, "RMS_WARPS": 32, "RMS_STAGES": 3}, "<= 225280"),
    ],
)
def test_impossible_settings_are_never_proposed(name: str, values: dict[str, KnobValue], says: str) -> None:
    case, _ = load(name)
    told = broken_constraint(case.knobs, values)
    assert told is not None
    assert says in told
    assert broken_constraint(case.knobs, {}) is None


def share(name: str, problem: str, distribution: str, wrong: object) -> float:
    """How far a wrong computation is off, as a share of the budget."""
    case, contract = load(name)
    sizes = contract.problems[problem]
    inputs = contract.inputs(sizes, distribution, torch.Generator().manual_seed(5))
    expected = expected_outputs(contract, sizes, inputs, case.settings.gate.error_budget)
    return worst_error({"y": wrong(**inputs).bfloat16()}, expected)  # type: ignore[operator]


def _no_maximum(x: torch.Tensor) -> torch.Tensor:
    powers = x.float().exp()
    return powers / powers.sum(1, keepdim=True)


def _maximum_from_zero(x: torch.Tensor) -> torch.Tensor:
    powers = (x.float() - x.float().amax(1, keepdim=True).clamp_min(0)).exp()
    return powers / powers.sum(1, keepdim=True)


def _bfloat16_sum(x: torch.Tensor) -> torch.Tensor:
    powers = (x.float() - x.float().amax(1, keepdim=True)).exp()
    total = torch.zeros_like(x[:, :1])
    for column in range(x.shape[1]):
        total += powers[:, column : column + 1].bfloat16()
    return powers / total.float()


def _half_the_row(x: torch.Tensor) -> torch.Tensor:
    powers = (x.float() - x.float().amax(1, keepdim=True)).exp()
    half = x.shape[1] // 2
    return powers / (powers[:, :half].sum(1, keepdim=True) * x.shape[1] / half)


def _no_rescaling(x: torch.Tensor) -> torch.Tensor:
    top, total = x[:, :1].float(), torch.zeros_like(x[:, :1], dtype=torch.float32)
    for block in x.float().split(256, 1):
        top = torch.maximum(top, block.amax(1, keepdim=True))
        total += (block - top).exp().sum(1, keepdim=True)
    return (x.float() - top).exp() / total


@pytest.mark.parametrize(
    ("wrong", "distribution"),
    [
        (_no_maximum, "offset"),
        (_no_maximum, "sunken"),
        (_no_maximum, "extreme"),
        (_maximum_from_zero, "sunken"),
        (_bfloat16_sum, "normal"),
        (_half_the_row, "rising"),
        (_half_the_row, "spike"),
        (_no_rescaling, "rising"),
        (torch.zeros_like, "normal"),
        (lambda x: torch.full_like(x, 1 / x.shape[1]), "normal"),
    ],
)
def test_wrong_softmaxes_are_far_outside_the_budget(wrong: object, distribution: str) -> None:
    assert share("triton_softmax", "row_1x4097", distribution, wrong) > 2


def _norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float, root_of: torch.Tensor) -> torch.Tensor:
    return x.float() / (root_of.square().mean(1, keepdim=True) + epsilon).sqrt() * weight


@pytest.mark.parametrize(
    ("wrong", "distribution"),
    [
        (lambda x, weight: x.float() * weight, "scaled"),
        (lambda x, weight: _norm(x, torch.ones_like(weight), 1e-6, x.float()), "scaled"),
        (lambda x, weight: _norm(x, weight, 0, x.float()), "tiny"),
        (lambda x, weight: _norm(x, weight, 1e-5, x.float()), "tiny"),
        (lambda x, weight: _norm(x, weight, 1e-6, x.float() - x.float().mean(1, keepdim=True)), "offset"),
        (lambda x, weight: _norm(x, weight, 1e-6, x.half().square().sqrt().float()), "huge"),
        (lambda x, weight: _norm(x, weight, 1e-6, x[:, ::2].float()), "outliers"),
        (lambda x, weight: torch.zeros_like(x), "scaled"),
    ],
)
def test_wrong_norms_are_far_outside_the_budget(wrong: object, distribution: str) -> None:
    assert share("triton_rmsnorm", "decode_7x4096", distribution, wrong) > 1.5


@pytest.mark.slow(10)
@pytest.mark.parametrize("name", NAMES)
def test_local_tests_pass(name: str, tmp_path: Path) -> None:
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    folder = CASES / "demo" / name / "workspace" / "tests"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, folder], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_knobs_are_read_as_everywhere() -> None:
    texts = {
        (CASES / "demo" / name / "workspace" / "knobs.py").read_text() for name in (*NAMES, "cpu_matmul")
    }
    assert len(texts) == 1
