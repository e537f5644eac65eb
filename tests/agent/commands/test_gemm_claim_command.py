"""hillclimb gemm claim, as it is typed: its cases are whole, and their kernels are those of the results."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.yardstick import is_compiled
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from hillclimb.harness.duel.parity import error_shares, expected_outputs
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.results import GpuCard, Measured, ProviderResults
from hillclimb.harness.gemm.shape import Dtype
from hillclimb.harness.judge.contract_mutants import LISTED, ContractMutants, find_surviving_mutants
from hillclimb.harness.knobs.knobs import defaults, load_knobs
from hillclimb.harness.policy.policy import check_policy
from tests.agent.commands.gemm_commands import typed_gemm
from tests.cases.workspace import import_file, load_case

WAY = "64x8x128_1x1_split4_once_by1_features_1x1_raster2_swizzle4_pdl"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(
    folder: Path, dtype: Dtype = "bf16", provider: str = "generated", factor: float = 1.0, kernel: str = ""
) -> str:
    """A file of two shapes."""
    measured = [
        Measured(
            name=name,
            m=m,
            n=264,
            k=272,
            dtype=dtype,
            runtime_ms=factor,
            kernel=kernel or f"warpgroup_gemm_{dtype}_{WAY}",
        )
        for name, m in (("one", 40), ("two", 41))
    ]
    file = ProviderResults(
        schema=1,
        provider=provider,
        gpu=GpuCard(name="NVIDIA H200"),
        software={"cublaslt": "130100"} if provider == "cublaslt" else {},
        results=tuple(measured),
    )
    path = folder / f"{provider}.json"
    path.write_text(file.model_dump_json(by_alias=True))
    return str(path)


def claimed(folder: Path, dtype: Dtype = "bf16") -> Path:
    typed_gemm("claim", results(folder, dtype), "--shapes", "one")
    return folder / "cases" / "gemm" / f"one_{dtype}"


def test_each_shape_becomes_a_case(folder: Path) -> None:
    words = ("claim", results(folder), "--baseline", results(folder, provider="cublas", factor=1.25))
    told = json.loads(typed_gemm(*words, "--shapes", "one,two", "--json"))
    assert [found["case"] for found in told] == ["gemm/one_bf16", "gemm/two_bf16"]
    assert told[0]["told"][1].endswith("cublas took 1250 us, 1.250 times as long.")
    for found in told:
        case = Case(Path(found["folder"]))
        check_policy(case.workspace, case.settings.policy)
        knobs = defaults(load_knobs(case.workspace / "knobs.yaml"))
        assert (knobs["GEMM_TOKENS"], knobs["GEMM_COLUMNS"], knobs["GEMM_SPLITS"]) == ("columns", 8, 4)
        first = case.first_to_sweep()
        assert len(first) > 8 and {one["GEMM_SWIZZLE"] for one in first} == {1}
        assert (knobs["GEMM_SWIZZLE"], knobs["GEMM_PDL"], knobs["GEMM_RASTER"]) == (4, True, "columns")
        texts = [
            path.read_text() for path in case.folder.rglob("*.*") if path.suffix in (".md", ".py", ".yaml")
        ]
        assert not [text for text in texts if "{{m}}" in text or "{{dtype}}" in text]
        assert "1.250 times as long" in (case.folder / "program.md").read_text()
        assert not (case.folder / "cublaslt.py").exists()


def test_a_baseline_of_cublaslt_gives_a_yardstick(folder: Path) -> None:
    """Of the claimed shape it is the algorithm that was fastest, which a GPU shows; of others torch's product."""
    cublas = results(folder, provider="cublas", factor=1.25)
    timed = results(folder, provider="cublaslt", factor=1.1, kernel="64x128_2x1_of_1")
    words = ("claim", results(folder), "--baseline", cublas, "--baseline", timed, "--shapes", "one")
    (told,) = json.loads(typed_gemm(*words, "--json"))
    assert told["told"][1].endswith("1.250 times as long. cublaslt took 1100 us, 1.100 times as long.")
    yardstick = import_file(Path(told["folder"]) / "cublaslt.py")
    assert not is_compiled((Path(told["folder"]) / "cublaslt.py").read_text())
    assert (yardstick.ANSWER, yardstick.TILE, yardstick.CLUSTER, yardstick.VERSION) == (1, 17, 3, "130100")
    assert (yardstick.M, yardstick.N, yardstick.K, yardstick.OPERAND) == (40, 264, 272, 14)
    x, w, out = torch.ones(3, 8), torch.ones(5, 8), torch.empty(3, 5)
    yardstick.run(x, w, out)
    assert (out == 8).all()


def test_what_is_there_already_is_left_alone_and_nothing_else_is_made(folder: Path) -> None:
    (folder / "cases" / "gemm" / "two_bf16").mkdir(parents=True)
    with pytest.raises(UsageError, match="cases/gemm/two_bf16 is there already"):
        typed_gemm("claim", results(folder), "--shapes", "one,two")
    assert not (folder / "cases" / "gemm" / "one_bf16").exists()
    typed_gemm("claim", results(folder), "--shapes", "one,one", "--family", "other")
    assert (folder / "cases" / "other" / "one_bf16" / "case.yaml").exists()


def test_a_name_that_is_no_folders_makes_nothing(folder: Path) -> None:
    file = Path(results(folder))
    file.write_text(file.read_text().replace('"two"', '"two-Llama.8b"'))
    with pytest.raises(UsageError, match=r"two-Llama.8b_bf16 is no name of a case"):
        typed_gemm("claim", str(file), "--shapes", "one,two-Llama.8b")
    assert not (folder / "cases").exists()


@pytest.mark.slow(8)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_what_is_wrong_on_purpose_is_noticed(folder: Path, dtype: Dtype) -> None:
    case, contract = load_case(claimed(folder, dtype), TORCH_DTYPES)
    small = [
        name
        for name, problem in contract.problems.items()
        if contract.work(problem).bytes <= MAX_INTERPRETED_BYTES
    ]
    assert "main" in small and len(small) > 5
    oracle = ContractMutants(contract, case.settings.gate.error_budget, "cpu")
    found = find_surviving_mutants(oracle, small, (), True, lambda progress: None)
    assert found.tried > 10
    assert [slip.mistake for slip in found.accepted if slip.mistake != LISTED] == []


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_budget_is_a_few_roundings_and_rows_stay_aligned(folder: Path, dtype: Dtype) -> None:
    _, contract = load_case(claimed(folder, dtype), TORCH_DTYPES)
    secret = random.Random(0)
    for problem in contract.problems.values():
        for _ in range(20):
            for other in (problem, *contract.vary(problem, secret)):
                assert other["n"] % 8 == other["k"] % 8 == 0 < min(other.values())
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(7))
            expected = expected_outputs(contract, problem, inputs, 1.0)
            assert (
                max(expected.budget.values()) <= 2 * torch.finfo(contract.outputs(problem)["out"].dtype).eps
            )


def cut_to(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Float64 values with so many bits of mantissa, the rest cut off towards zero."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp(torch.trunc(torch.ldexp(mantissa, torch.tensor(bits))), exponent - bits)


def summed(x: torch.Tensor, w: torch.Tensor, bits: int) -> torch.Tensor:
    """x w^T as a tensor core sums it: 16 products at once, then cut off. Shapes (m, k) and (n, k)."""
    total = torch.zeros(len(x), len(w), dtype=torch.float64)
    for first in range(0, x.shape[1], 16):
        part = x[:, first : first + 16].double() @ w[:, first : first + 16].double().T
        total = cut_to(total + part, bits)
    return total


@pytest.mark.parametrize(("bits", "expected"), [(24, True), (20, False)])
def test_a_sum_that_falls_again_may_lose_what_tensor_cores_cut_off(
    folder: Path, bits: int, expected: bool
) -> None:
    """At any height, and no more than that: the worst of all results is one that is nearly zero."""
    _, contract = load_case(claimed(folder), TORCH_DTYPES)
    m, n, k = 32, 64, 8192
    generator = torch.Generator().manual_seed(3)
    x, w = (torch.randn(rows, k, generator=generator).abs().add(1).bfloat16() for rows in (m, n))
    x[:, k // 2 :] = -x[:, : k // 2]
    w[:, k // 2 :] = w[:, : k // 2]
    x[:, 0] += 0.5
    problem, inputs = {"m": m, "n": n, "k": k}, {"x": x, "w": w}
    wanted = expected_outputs(contract, problem, inputs, 1.5)
    shares = error_shares({"out": summed(x, w, bits).bfloat16()}, wanted)["out"]
    assert bool(shares.max() <= 1) == expected, shares.max()
