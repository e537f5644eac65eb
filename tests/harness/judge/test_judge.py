"""Duels between real sandboxed processes: faster is kept, equal and slower are not, and nothing said decides."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.duel_factory import CONTROL_SEGMENTS, SCREENED_MIXED, SCREENING_SHARE, Processes
from hillclimb.harness.duel.pairs import seconds_per_call
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CaseError, MachineError, UnreapedError, UsageError
from hillclimb.harness.judge.gate import MIN_CHECKED_CALLS
from hillclimb.harness.judge.health import GpuHealth
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import HONEST, SETTINGS, repeated, write_case, write_workspace

SKIPS_LATER = """
import numpy as np
calls = []

def run(x, y):
    calls.append(1)
    if len(calls) > 150 and len(calls) % 2:
        return
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
"""

WORKS_AHEAD = """
import sys
import numpy as np

def once(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)

def run(x, y):
    slots = sys._getframe(1).f_locals["slots"]
    if len(slots) > 1:
        if x is slots[0][0]:
            for inputs, outputs in slots:
                once(inputs, outputs)
        return
    for _ in range(60):
        once(x, y)
"""

BUSY_IN_THE_OTHERS_TURN = """
import threading
import numpy as np

def spin():
    while True:
        pass

for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()

def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
"""


def _ignore(progress: Progress) -> None:
    pass


FAST, SLOW = repeated(10), repeated(60)


JUDGES: list[CaseJudge] = []
"""That a test has made."""


@pytest.fixture(autouse=True)
def tidied() -> Iterator[None]:
    """What a judge sent off is waited for, as its process does where nothing is asked."""
    yield
    while JUDGES:
        with suppress(MachineError):  # closed by the test
            JUDGES.pop().clean_up()


class Bench:
    """A judge over the small case, and workspaces by name."""

    def __init__(self, root: Path, **changes: str) -> None:
        root.chmod(0o755)
        self.root = root
        settings = SETTINGS
        for old, new in changes.items():
            settings = settings.replace(old, new)
        self.judge = CaseJudge(
            Case(write_case(root, settings=settings)), choose_rung(trust_workspace=False), CpuDevice()
        )
        JUDGES.append(self.judge)

    def side(self, name: str, kernel: str) -> Side:
        return Side(tree=str(write_workspace(self.root / name / "workspace", kernel)))


@pytest.mark.clock
def test_a_true_gain_is_kept_and_its_interval_holds_the_truth(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    fast, slow = bench.side("fast", FAST), bench.side("slow", SLOW)
    seen: list[Progress] = []
    screening = bench.judge.screen(fast, slow, seen.append)
    assert screening.reason is None
    assert screening.speedup is not None
    assert screening.speedup > 2
    verdict = bench.judge.confirm(fast, slow, slow, 0.006, seen.append)
    assert verdict.reason is None, verdict.detail
    assert verdict.e_value >= 1 / 0.006
    assert verdict.speedup is not None
    assert verdict.speedup == verdict.cumulative
    assert 2 < verdict.speedup.estimate < 8
    assert verdict.speedup.low < verdict.speedup.estimate < verdict.speedup.high
    assert {p.stage for p in verdict.pairs} == {"decide", "alone", "report"}
    assert {"gate", "screen", "decide", "report"} <= {p.stage for p in seen}
    reported = [p for p in verdict.pairs if p.stage == "report"]
    assert len(reported) == verdict.speedup.pairs
    assert len(reported) in (3, 6, 9), "rounds of three, until the interval excludes 1"


@pytest.mark.parametrize(("kind", "share"), [("cpu", 1.0), ("cuda", SCREENING_SHARE)])
def test_a_screening_mixes_less_and_on_a_gpu_has_shorter_segments(
    tmp_path: Path, kind: str, share: float
) -> None:
    device = CpuDevice()
    device.kind = kind  # type: ignore[assignment]
    bench = replace(Bench(tmp_path).judge._duels, device=device)
    sides = cast(Processes, (None, None))
    whole, screening = (
        bench.new_duel(sides, "main").settings,
        bench.new_screening_duel(sides, "main").settings,
    )
    shorter = share * whole.segment_seconds
    assert screening == replace(whole, segment_seconds=shorter, most_mixed=SCREENED_MIXED)
    assert screening.opponent_seconds is whole.opponent_seconds


@pytest.mark.clock
def test_after_a_controlled_pair_the_opponent_is_timed_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    fast, slow = bench.side("fast", FAST), bench.side("slow", SLOW)
    pairs = bench.judge._duels.measure_fresh_pairs(fast, slow, "report", _ignore, is_controlled=True)
    assert {pair.stage for pair in pairs} == {"report"}
    assert all(len(pair.opponent_alone) == CONTROL_SEGMENTS for pair in pairs)
    beside, alone = seconds_per_call(pairs, "B"), statistics.median(pairs[0].opponent_alone)
    assert 0.4 < alone / beside < 2.5, "the same kernel, and not the other, which is six times as fast"


@pytest.mark.clock
@pytest.mark.slow(4)
def test_slower_and_equal_are_rejected_by_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    fast, slow, same = (
        bench.side("fast", HONEST),
        bench.side("slow", SLOW),
        bench.side("same", HONEST + "# same\n"),
    )
    assert bench.judge.screen(slow, fast, _ignore).reason is Reason.SLOWER
    verdict = bench.judge.confirm(same, fast, fast, 0.006, _ignore)
    assert verdict.reason in (Reason.NO_PROVEN_GAIN, Reason.SLOWER, Reason.NOT_PER_CALL)
    assert verdict.speedup is None, "no speedup is reported for what was not accepted"
    assert verdict.decided and verdict.decided.stage == "decide", "what was seen is told all the same"


LIBRARY = """
import numpy as np
import torch

def run(x, y):
    np.matmul(x[:, None], np.full((1, 1), 2, np.float32), out=y[:, None])
    np.add(y, np.float32(1), out=y)
"""


def test_a_library_may_be_what_is_beaten_and_never_what_wins(tmp_path: Path) -> None:
    """And frees nobody but itself."""
    bench = Bench(tmp_path)
    judge, library, honest = bench.judge, bench.side("library", LIBRARY), bench.side("honest", HONEST)
    yardstick = library.model_copy(update={"is_yardstick": True})
    assert judge.gate(yardstick, _ignore).passed
    assert judge.gate(library, _ignore).reason is Reason.POLICY
    assert judge.screen(library, yardstick, _ignore).reason is Reason.POLICY
    assert judge.confirm(library, yardstick, yardstick, 0.006, _ignore).reason is Reason.POLICY
    for ask in (
        lambda: judge.screen(yardstick, honest, _ignore),
        lambda: judge.confirm(yardstick, honest, honest, 0.006, _ignore),
    ):
        with pytest.raises(UsageError, match="a yardstick cannot be the candidate"):
            ask()


@pytest.mark.clock
def test_work_skipped_while_timed_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cheat, slow = bench.side("cheat", SKIPS_LATER), bench.side("slow", SLOW)
    screening = bench.judge.screen(cheat, slow, _ignore)
    assert screening.reason is Reason.OUTPUT_NOT_WRITTEN
    assert screening.gate.passed
    assert "of a segment wrote no whole output" in screening.detail


@pytest.mark.clock
def test_threads_left_running_do_not_slow_the_other_side(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    busy, honest = bench.side("busy", BUSY_IN_THE_OTHERS_TURN), bench.side("honest", HONEST)
    screening = bench.judge.screen(busy, honest, _ignore)
    assert screening.reason in (Reason.SLOWER, Reason.LEFT_WORK_RUNNING), (
        "its own threads slow only itself; frozen, they slow nobody else"
    )


@pytest.mark.clock
@pytest.mark.slow(12)
@pytest.mark.usefixtures("unread")
def test_a_gain_from_working_ahead_between_calls_is_no_win(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cheat, slow = bench.side("cheat", WORKS_AHEAD), bench.side("slow", SLOW)
    assert bench.judge.screen(cheat, slow, _ignore).reason is None, "segments alone are taken in"
    assert bench.judge.confirm(cheat, slow, slow, 0.006, _ignore).reason is Reason.NOT_PER_CALL


@pytest.mark.clock
@pytest.mark.slow(4)
def test_a_guardrail_stops_a_win_that_costs_too_much_elsewhere(tmp_path: Path) -> None:
    settings = SETTINGS + "guardrails: [{suite: small, max_slowdown: 0.2}]\n"
    tmp_path.chmod(0o755)
    folder = write_case(tmp_path, settings=settings)
    (folder / "benchmarks" / "small.yaml").write_text("problems: [odd]\ndistribution: normal\n")
    trade = FAST.replace("range(10)", "range(10 if x.size == 20_000 else 2000)")
    bench = CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())
    JUDGES.append(bench)
    fast = Side(tree=str(write_workspace(tmp_path / "trade" / "workspace", trade)))
    slow = Side(tree=str(write_workspace(tmp_path / "slow" / "workspace", SLOW)))
    screening = bench.screen(fast, slow, _ignore)
    assert screening.reason is Reason.GUARDRAIL, screening.detail
    assert "suite small runs at 0." in screening.detail, "by far, so that one look is enough"
    assert screening.speedup is not None
    assert screening.speedup > 2
    assert [(pair.stage, pair.suite) for pair in screening.pairs] == [("screen", "main"), ("screen", "small")]
    verdict = bench.confirm(fast, slow, slow, 0.006, _ignore)
    assert verdict.reason is Reason.GUARDRAIL, verdict.detail
    assert not verdict.guardrails[0].passed


def test_the_incumbents_fault_is_not_the_candidates(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    broken = bench.side("broken", "def run(x, y):\n    raise ValueError\n")
    with pytest.raises(MachineError, match="incumbent failed"):
        bench.judge.screen(bench.side("honest", HONEST), broken, _ignore)


@pytest.mark.clock
@pytest.mark.slow(4)
def test_comparing_a_tree_with_itself_measures_the_noise(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    side = bench.side("same", HONEST)
    found = bench.judge.compare(side, side, "noise", _ignore)
    assert 0.5 < found.speedup.estimate < 2
    assert found.pair_sd > 0
    assert found.seconds_per_call[0] > 0


def test_who_is_sent_off_is_told_at_once_and_waited_for_later(tmp_path: Path) -> None:
    """The next pair's imports hide how long that takes."""
    bench = Bench(tmp_path)
    slow, same = bench.side("slow", SLOW), bench.side("same", HONEST)
    waiting = bench.judge._duels.ending
    bench.judge.screen(slow, same, _ignore)
    first = list(waiting)
    assert len(first) == 2
    assert not any(process.is_closed for process in first)
    bench.judge.screen(slow, same, _ignore)
    assert all(process.is_closed for process in first)
    assert len(waiting) == 2
    bench.judge.clean_up()
    assert waiting == []
    assert not any(Path(f"/proc/{process.pid}").exists() for process in first)


class Hung:
    """A process that no signal ends."""

    def close(self) -> None:
        raise UnreapedError("it hangs in the kernel", 4711)


def test_one_that_cannot_be_ended_is_put_down_and_keeps_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, int]] = []
    monkeypatch.setattr(CpuDevice, "quarantine", lambda cpu, reason, pid: noted.append((reason, pid)))
    bench = Bench(tmp_path)
    slow, same = bench.side("slow", SLOW), bench.side("same", HONEST)
    bench.judge.screen(slow, same, _ignore)
    leaving = bench.judge._duels.ending
    living = list(leaving)
    leaving[1:1] = [cast(CandidateProcess, Hung())]
    with pytest.raises(UnreapedError):
        bench.judge.close()
    assert noted == [("it hangs in the kernel", 4711)]
    assert all(process.is_closed for process in living)


@pytest.mark.slow(3)
def test_a_doubt_is_settled_when_the_last_candidates_processes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    slow, same = bench.side("slow", SLOW), bench.side("same", HONEST)
    bench.judge.screen(slow, same, _ignore)
    left: list[int] = []
    monkeypatch.setattr(GpuHealth, "is_suspect", True)
    monkeypatch.setattr(GpuHealth, "verify", lambda health: left.append(len(bench.judge._duels.ending)))
    bench.judge.screen(slow, same, _ignore)
    assert left == [0]


def test_a_suite_that_names_an_unknown_problem_is_the_cases_error(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    (folder / "benchmarks" / "main.yaml").write_text("problems: [huge]\ndistribution: normal\n")
    with pytest.raises(
        CaseError, match=r"main.yaml: problems: value 'huge' is not in contract.py; choose among small"
    ):
        CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())


def test_a_screening_is_gated_with_one_seed_and_one_neighbour(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **{"gate: {seeds: 1}": "gate: {seeds: 3}"})
    side = bench.side("same", HONEST)
    contract = bench.judge._duels.contract
    listed, distributions = len(contract.problems), len(contract.distributions)
    calls = max(MIN_CHECKED_CALLS, distributions)
    screening = bench.judge.screen(side, side, lambda progress: None)
    assert screening.gate.passed
    assert screening.gate.runs == listed * calls + MIN_CHECKED_CALLS
    gated = bench.judge.gate(side, lambda progress: None)
    assert gated.runs == listed * 3 * distributions + 2 * MIN_CHECKED_CALLS
