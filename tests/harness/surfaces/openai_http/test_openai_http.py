"""Servers as candidates: real sandboxes, real sockets, a tiny Llama run by transformers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CaseError, IncumbentFault, JudgeError, UsageError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.served import BACKEND, SETTINGS, write_served_case

pytestmark = pytest.mark.xdist_group("served")


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    return write_served_case(tmp_path_factory.mktemp("case"), tiny)


@pytest.fixture(scope="module")
def judge(folder: Path) -> Iterator[LocalJudge]:
    with closing(LocalJudge(folder, folder / "judge.log")) as one:
        yield one


def side(tmp_path: Path, backend: str = BACKEND, **knobs: str) -> Side:
    tree = tmp_path / f"side{len(list(tmp_path.iterdir()))}"
    tree.mkdir()
    (tree / "backend.py").write_text(backend)
    return Side(tree=str(tree), knobs=knobs)


def test_an_honest_server_passes(judge: LocalJudge, tmp_path: Path) -> None:
    report = judge.gate(side(tmp_path), ignore)
    assert report.passed, report.detail
    assert report.runs == 2 and 0 < report.worst < 0.01


MADE = "    # MADE"
WRONG = {
    "a layer left out": (
        BACKEND.replace(MADE, "    backend.module.model.layers = backend.module.model.layers[:-1]"),
        Reason.WRONG_RESULT,
    ),
    "it dies when it is asked": (
        BACKEND.replace("time.sleep(PREFILL)", "os.kill(os.getpid(), 11)"),
        Reason.CRASHED,
    ),
    "it leaves when it has answered": (
        BACKEND.replace(
            "    def decode(", "    def reset(self, slot):\n        os._exit(0)\n\n    def decode("
        ),
        Reason.EXITED,
    ),
    "it raises": (BACKEND.replace("time.sleep(PREFILL)", "raise ValueError"), Reason.BROKE_PROTOCOL),
    "it does not load": (BACKEND.replace(MADE, "    raise ValueError"), Reason.DOES_NOT_LOAD),
    "it imports what it may not": (f"import ctypes\n{BACKEND}", Reason.POLICY),
    "it takes too long": (BACKEND.replace("PREFILL)", "30)"), Reason.HUNG),
}


@pytest.mark.slow(60)
@pytest.mark.parametrize(("backend", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_called_by_its_name(
    folder: Path, tmp_path: Path, tiny: Path, backend: str, reason: Reason
) -> None:
    case = write_served_case(tmp_path / "quick", tiny)
    text = (case / "case.yaml").read_text()
    (case / "case.yaml").write_text(
        text.replace("call_seconds: 20", "call_seconds: 5").replace("imports: [", "imports: [os.*, ")
    )
    with closing(LocalJudge(case, tmp_path / "judge.log")) as judge:
        report = judge.gate(side(tmp_path, backend), ignore)
    assert report.reason is reason, report.detail


@pytest.mark.slow(200)
def test_a_planted_gain_is_kept(judge: LocalJudge, tmp_path: Path) -> None:
    fast, slow = (side(tmp_path, PREFILL_SLEEP="0.1", DECODE_SLEEP=sleep) for sleep in ("0", "0.03"))
    kept = judge.confirm(fast, slow, slow, 0.01, ignore)
    assert kept.reason is None, kept.detail
    assert kept.speedup is not None and kept.speedup.low > 1.5
    told = {(one.suite, one.metric): one for one in kept.metrics}
    assert told["single", "tpot"].before > 0.03 > told["single", "tpot"].value
    assert told["both", "tokens_per_second"].gain.estimate > 1.5
    assert told["single", "memory"].value > 100
    assert all(rail.passed for rail in kept.guardrails)


@pytest.mark.slow(60)
def test_a_slower_first_token_is_refused_by_name(judge: LocalJudge, tmp_path: Path) -> None:
    candidate, incumbent = side(tmp_path, PREFILL_SLEEP="0.4"), side(tmp_path, DECODE_SLEEP="0.1")
    screening = judge.screen(candidate, incumbent, ignore)
    assert screening.reason is Reason.GUARDRAIL, screening.detail
    assert "suite single: ttft" in screening.detail


@pytest.mark.slow(60)
def test_an_incumbent_that_fails_is_not_the_candidates_fault(judge: LocalJudge, tmp_path: Path) -> None:
    broken = side(tmp_path, BACKEND.replace("time.sleep(DECODE)", "raise ValueError"))
    with pytest.raises(IncumbentFault):
        judge.screen(side(tmp_path), broken, ignore)


@pytest.mark.slow(60)
def test_a_killed_judge_leaves_no_server(folder: Path, tmp_path: Path) -> None:
    judge, reached = LocalJudge(folder, tmp_path / "judge.log"), threading.Event()

    def screen() -> None:
        with suppress(JudgeError):
            judge.screen(
                side(tmp_path), side(tmp_path), lambda told: reached.set() if told.stage == "screen" else None
            )

    thread = threading.Thread(target=screen)
    thread.start()
    assert reached.wait(120)
    process = psutil.Process(judge._process.pid)
    inside = process.children(recursive=True)
    assert any("hillclimb.harness.serving.confined.inside" in one.cmdline() for one in inside)
    os.kill(process.pid, signal.SIGKILL)
    thread.join()
    deadline = time.monotonic() + 30
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in inside):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    judge.close()


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("serving: {{", "# {{", "say which backend"),
        ("model_path: {model_path}\n", "", "set model_path"),
        ("entry: backend.py:create_backend", "entry: backend.py:other", "set entry: backend.py:create_back"),
        ("metric: ttft", "metric: tttf", "ttft"),
        ("direction: higher", "direction: lower", "must be 'higher'"),
    ],
)
def test_a_slip_in_the_settings_is_told(
    tmp_path: Path, tiny: Path, was: str, becomes: str, told: str
) -> None:
    assert was in SETTINGS
    folder = write_served_case(tmp_path, tiny)
    (folder / "case.yaml").write_text(SETTINGS.replace(was, becomes).format(model_path=tiny))
    with pytest.raises(CaseError, match=told):
        Case(folder)


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("context: 128", "context: 20", "serving.context is 20"),
        ("metric: tokens_per_second, direction: higher", "metric: tpot, direction: lower", "held back"),
        ("summary:", "device: cuda\nsummary:", "GPU"),
    ],
)
def test_what_cannot_be_judged_is_told_before_anything_runs(
    tmp_path: Path, tiny: Path, was: str, becomes: str, told: str
) -> None:
    assert was in SETTINGS
    folder = write_served_case(tmp_path, tiny)
    settings = SETTINGS.replace("metric: ttft", "metric: memory") if "tpot" in becomes else SETTINGS
    (folder / "case.yaml").write_text(settings.replace(was, becomes).format(model_path=tiny))
    with pytest.raises(UsageError, match=told):
        LocalJudge(folder, tmp_path / "judge.log").close()
