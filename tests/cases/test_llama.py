"""The case llama_1b/single_stream without a GPU: a small model of its form, walked through by Triton's interpreter."""

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

FOLDER = CASES / "llama_1b" / "single_stream"

SMALL = "LlamaShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=250, head_dim=16)"

PROBLEMS = """{
        "decode": {"batch": 1, "context": 9, "prompt": 1, "tokens": 3},
        "decode_2048": {"batch": 1, "context": 70, "prompt": 1, "tokens": 1},
        "prefill": {"batch": 1, "context": 0, "prompt": 12, "tokens": 1},
        "chat": {"batch": 1, "context": 0, "prompt": 5, "tokens": 2},
        "two": {"batch": 2, "context": 5, "prompt": 3, "tokens": 2},
    }"""


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "cases" / "llama_1b" / "single_stream"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "contract.py").read_text()
    source = re.sub(r"LlamaShape\(.*?\n    \)", SMALL, source, flags=re.DOTALL)
    problems = f"problems: ClassVar = {PROBLEMS}\n    audited_share = 1.0"
    source = re.sub(r"problems: ClassVar = \{.*\}", problems, source, flags=re.DOTALL)
    (folder / "contract.py").write_text(source)
    return Case(folder)


@pytest.fixture
def judge(case: Case) -> Iterator[CaseJudge]:
    with closing(CaseJudge(case, choose_rung(trust_workspace=False), InterpreterDevice())) as one:
        yield one


FEW_PROGRAMS = {
    "LLAMA_QKV_PAIRS": "8",
    "LLAMA_O_ROWS": "16",
    "LLAMA_GATE_ROWS": "8",
    "LLAMA_DOWN_ROWS": "8",
    "LLAMA_HEAD_ROWS": "32",
    "LLAMA_SPLITS": "1",
    "LLAMA_ATTENTION_BLOCK": "16",
}


@pytest.mark.parametrize("knobs", [FEW_PROGRAMS, pytest.param({}, marks=pytest.mark.slow(36))])
def test_the_kernels_are_right(case: Case, judge: CaseJudge, knobs: dict[str, str]) -> None:
    report = judge.gate(Side(tree=str(case.workspace), knobs=knobs), ignore)
    assert report.passed, report.detail
    assert report.worst < 0.9


WRONG = {
    "a part of the positions is left out": (
        "begins, ends = split * length,",
        "begins, ends = split * length + 1,",
    ),
    "the residual stream is not added to": ("tl.load(x + row) + total)", "total)"),
    "half of the logits are not looked at": ("part < parts, other=-float", "part < parts // 2, other=-float"),
}


@pytest.mark.slow(12)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_rejected(case: Case, judge: CaseJudge, name: str) -> None:
    file = case.workspace / "decode.py"
    wrong = file.read_text().replace(*WRONG[name])
    assert wrong != file.read_text()
    file.write_text(wrong)
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.reason == Reason.WRONG_RESULT, report


def test_suites_and_knobs_fit_the_contract() -> None:
    case, contract = load_case(FOLDER, TORCH_DTYPES)
    assert {p for suite in case.suites.values() for p in suite.problems} <= set(contract.problems)
    assert all(knob.doc for knob in case.knobs.values())
    assert contract.work(contract.problems["decode"]).bytes / 64 == pytest.approx(2471e6, rel=0.05)
