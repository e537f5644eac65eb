"""Neighbours of sessions: problems that no list shows, though every problem of a large model moves its weights."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.case.contracts.llama.model import LlamaShape
from hillclimb.harness.case.contracts.llama.session import LlamaSession
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.gated_problems import (
    CONFIRMED_NEIGHBOURS,
    MAX_NEIGHBOUR_BYTES,
    MAX_NEIGHBOUR_GROWTH,
    NEIGHBOURS,
    draw_gated_problems,
)
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import GateReport, Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.cases.workspace import CASES
from tests.fakes.cases import write_workspace
from tests.fakes.session import KERNEL, write_session

LARGE = """
    def work(self, problem):
        found = super().work(problem)
        return type(found)(flops=found.flops, bytes=found.bytes + (1 << 30))
"""
"""In a contract: problems that move as much as a large model's, and are computed in no time."""

FITTED = KERNEL.replace(
    "        read = prompt\n",
    """        sizes = (*prompt.shape, tokens.shape[1], context)
        is_listed = sizes in [(2, 9, 1, 0), (2, 2, 3, 5), (2, 1, 8, 24), (2, 1, 32, 24)]
        read = prompt
""",
).replace("# FOUND", "found *= np.float32(1 if is_listed else 0.9)")
"""Right where its sizes are listed ones."""


class Listed(LlamaSession):
    shape = LlamaShape(layers=1, hidden=16, heads=1, kv_heads=1, ffn=16, vocab=32, head_dim=16)
    problems = {  # noqa: RUF012
        "one": {"batch": 1, "context": 0, "prompt": 9, "tokens": 1},
        "two": {"batch": 2, "context": 0, "prompt": 9, "tokens": 1},
    }


def ignore(progress: Progress) -> None:
    pass


def gate(tmp_path: Path, kernel: str) -> GateReport:
    folder = write_session(tmp_path / "case")
    contract = folder / "contract.py"
    contract.write_text(contract.read_text() + LARGE)
    with closing(CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())) as judge:
        return judge.gate(Side(tree=str(write_workspace(tmp_path / "side", kernel))), ignore)


def test_a_kernel_right_on_listed_problems_alone_is_rejected(tmp_path: Path) -> None:
    report = gate(tmp_path, FITTED)
    assert report.reason == Reason.WRONG_RESULT, report
    assert "~batch=" in report.detail, report.detail


def test_one_that_is_right_on_all_passes(tmp_path: Path) -> None:
    report = gate(tmp_path, KERNEL)
    assert report.passed, report.detail


@pytest.fixture(scope="module")
def one_billion() -> Contract:
    """Of the case llama_1b/single_stream: none of its problems is computed here."""
    return load_contract(CASES / "llama_1b" / "single_stream" / "contract.py")


@pytest.mark.parametrize("seed", range(6))
def test_a_large_model_has_neighbours(one_billion: Contract, seed: int) -> None:
    listed = tuple(one_billion.problems)
    smallest = min(one_billion.work(problem).bytes for problem in one_billion.problems.values())
    assert smallest > MAX_NEIGHBOUR_BYTES
    for count in (NEIGHBOURS, CONFIRMED_NEIGHBOURS):
        gated = draw_gated_problems(one_billion, listed, random.Random(seed), 1e15, count)
        assert len(gated.neighbours) >= min(count, 8)
        for name in gated.neighbours:
            problem = gated.contract.problems[name]
            assert problem not in one_billion.problems.values()
            assert one_billion.work(problem).bytes <= MAX_NEIGHBOUR_GROWTH * smallest


@pytest.mark.parametrize("seed", range(6))
def test_each_size_varies(one_billion: Contract, seed: int) -> None:
    for problem in one_billion.problems.values():
        found = one_billion.vary(problem, random.Random(seed))
        changed = [{key for key in problem if other[key] != problem[key]} for other in found]
        assert changed == [{"context"}, {"batch"}, {"tokens"}, {"prompt"}]


@pytest.mark.parametrize("seed", range(6))
def test_no_listed_problem_is_varied_into_another(seed: int) -> None:
    contract, one = Listed(), Listed.problems["one"]
    found = contract.vary(one, random.Random(seed))
    assert [other["batch"] for other in found] == [1, 1, 1], "of another batch there is a listed one"
    assert not [other for other in found if other in contract.problems.values()]
