"""Sessions: a Llama reads tokens and makes tokens, judged as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import write_case, write_workspace
from tests.fakes.session import KERNEL, SLOW, write_session, write_session_for_gpu


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[CaseJudge]:
    one = CaseJudge(Case(write_session(tmp_path / "case")), choose_rung(trust_workspace=False), CpuDevice())
    yield one
    one.close()


def side(tmp_path: Path, kernel: str, name: str = "side") -> Side:
    return Side(tree=str(write_workspace(tmp_path / name, kernel)))


def test_an_honest_session_passes(judge: CaseJudge, tmp_path: Path) -> None:
    report = judge.gate(side(tmp_path, KERNEL), ignore)
    assert report.passed, report.detail
    assert report.worst < 0.2  # it computes in float32, and the budget is of bfloat16


def test_a_faster_session_is_kept(judge: CaseJudge, tmp_path: Path) -> None:
    fast, slow = side(tmp_path, KERNEL, "fast"), side(tmp_path, SLOW, "slow")
    kept = judge.confirm(fast, slow, slow, 0.01, ignore)
    assert kept.reason is None, kept.detail
    assert kept.speedup is not None and kept.speedup.estimate > 1.5


def prepared(*lines: str) -> str:
    """The kernel with weights that are changed beforehand."""
    return KERNEL.replace("# PREPARED", "\n        ".join(["w = self.w", *lines]))


WRONG = {
    "a layer is left out": KERNEL.replace('for layer in range(len(w["q"])):', "for layer in range(1):"),
    "a matrix is scaled": prepared('w["o"][1] *= np.float32(0.98)'),
    "a wider matrix is scaled": prepared('w["up"][0] *= np.float32(0.98)'),
    "the logits are scaled": KERNEL.replace("# FOUND", "found *= np.float32(0.98)"),
    "weights have eight bits": prepared(
        'for name in ("q", "k", "v", "o", "gate", "up", "down", "embedding"):',
        "    unit = abs(w[name]).max(-1, keepdims=True) / 127",
        "    w[name] = np.round(w[name] / unit) * unit",
    ),
    "it reads its own token": KERNEL.replace("tokens[:, step] + shifts[:, step]", "tokens[:, step]"),
    "it reads no cache": KERNEL.replace(
        "hidden = np.arange(end) >", "hidden = (np.arange(end) < context) | (np.arange(end) >"
    ).replace("np.arange(context, end)[:, None]\n", "np.arange(context, end)[:, None])\n"),
    "the second best token": KERNEL.replace("found.argmax(1)", "np.argsort(found, 1)[:, -2]"),
    "no such token": KERNEL.replace("found.argmax(1)", "-1"),
    "fewer tokens": KERNEL.replace("range(tokens.shape[1])", "range(tokens.shape[1] - 1)").replace(
        "        for step", "        tokens[:], logits[:] = 0, 0.5\n        for step"
    ),
    "the cache is not kept": KERNEL.replace(
        "context += read", "keys[:, :, :, context:context + 1] = 0\n            context += read"
    ),
    "what was given is changed": KERNEL.replace(
        "read = prompt\n", "read = prompt\n        keys[..., :1, :] *= 1.001\n"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_session_is_rejected(judge: CaseJudge, tmp_path: Path, name: str) -> None:
    assert WRONG[name] != KERNEL
    report = judge.gate(side(tmp_path, WRONG[name]), ignore)
    assert report.reason == Reason.WRONG_RESULT, report


def test_an_honest_session_in_bfloat16_passes(tmp_path: Path) -> None:
    case = Case(write_session_for_gpu(tmp_path / "case"))
    with closing(CaseJudge(case, choose_rung(trust_workspace=False), InterpreterDevice())) as judge:
        report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.passed, report.detail
    assert 0.1 < report.worst < 0.9


@pytest.mark.parametrize(
    ("write", "given", "wanted"), [(write_session, "kernel", "session"), (write_case, "session", "kernel")]
)
def test_a_contract_is_for_one_surface(
    tmp_path: Path, write: Callable[[Path], Path], given: str, wanted: str
) -> None:
    folder = write(tmp_path / "case")
    settings = (folder / "case.yaml").read_text().replace("surface: session\n", "")
    (folder / "case.yaml").write_text(f"{settings}surface: {given}\n")
    with pytest.raises(CaseError, match=f"set surface: {wanted}"):
        CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())


def test_the_contract_sees_planted_mistakes(judge: CaseJudge) -> None:
    report = judge.check_oracle(ignore)
    assert report.accepted == ()
