"""The case llama_1b/throughput without a GPU: a small model of its form."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import InterpreterDevice
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.cases.workspace import CASES, load_case

FOLDER = CASES / "llama_1b" / "throughput"
SMALL = "LlamaShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=250, head_dim=16)"


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "cases" / "llama_1b" / "throughput"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "contract.py").read_text()
    small = re.sub(r"LlamaShape\(.*?\n    \)", SMALL, source, flags=re.DOTALL)
    (folder / "contract.py").write_text(f"{small}    audited_share = 1.0\n")
    return Case(folder)


@pytest.fixture
def judge(case: Case) -> Iterator[CaseJudge]:
    with closing(CaseJudge(case, choose_rung(trust_workspace=False), InterpreterDevice())) as one:
        yield one


def test_it_starts_right(case: Case, judge: CaseJudge) -> None:
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.passed, report.detail
    assert report.worst < 0.9


WRONG = {
    "the sequences share a cache": (
        "cache = keys[layer, :, :, :end]",
        "cache = keys[layer, :1, :, :end].expand_as(keys[layer, :, :, :end])",
    ),
    "a mask that is one position short": (".tril(end - count)", ".tril(end - count - 1)"),
    "the last sequence is not read": ("logits[:, step] = found", "logits[:-1, step] = found[:-1]"),
}


@pytest.mark.slow(10)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_rejected(case: Case, judge: CaseJudge, name: str) -> None:
    file = case.workspace / "kernel.py"
    wrong = file.read_text().replace(*WRONG[name])
    assert wrong != file.read_text()
    file.write_text(wrong)
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.reason in (Reason.WRONG_RESULT, Reason.OUTPUT_NOT_WRITTEN, Reason.RAISED), report


def test_suites_fit_the_contract() -> None:
    case, contract = load_case(FOLDER, TORCH_DTYPES)
    assert {p for suite in case.suites.values() for p in suite.problems} <= set(contract.problems)
    assert contract.work(contract.problems["decode_8"]).bytes / 16 == pytest.approx(2471e6, rel=0.1)
