"""Duels of real processes: what a block is made of, which one is dropped, and what a duel finds out about a side.

Cards are GPUs by what a judge asks of them, on which tensors lie on the host: the same steps, lead-ins and clocks.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.settings import Suite
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.device.device import Device, RequiredWork
from hillclimb.harness.duel.duel import InterleavedDuel
from hillclimb.harness.duel.inputs import MAX_MIXED
from hillclimb.harness.duel.pairs import clean_blocks, pair_record
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import LaunchSpec, ProcessLimits, Timing
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.duel.workload import DuelSettings, Workload
from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.records import Block, Environment, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import Rung
from hillclimb.harness.statistics.readings import log_ratio, side_seconds
from tests.fakes.cases import write_case

KERNEL = """
import os, sys, time
import torch

def run(x, y):
    torch.mul(x, 2, out=y)
    y += 1

for _ in range(3):
    run(torch.ones(20_000), torch.ones(20_000))

"""
WAITS = KERNEL + "once = run\ndef run(x, y):\n    once(x, y)\n    time.sleep({seconds})\n"
RUNNER = 'runner = sys.modules["__main__"].Runner\n'


class Host(CpuDevice):
    """Hands tensors out, which are as quick to load as they are forked."""

    tensors: Literal["numpy", "torch"] = "torch"
    dtypes = TORCH_DTYPES


class Card(Host):
    """A GPU by what a duel asks of one."""

    kind: Literal["cuda"] = "cuda"  # type: ignore[assignment]
    l2_bytes = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def reset_settings(self) -> None:
        self.done.append("rest")

    def flush_cache(self) -> None:
        self.done.append("flush")

    def synchronize(self) -> None:
        self.done.append("synchronize")


class Physical(Card):
    """No call on it is shorter than this."""

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor, self.asked = floor, set[tuple[float, int, str]]()

    def floor_seconds(
        self, work: RequiredWork, calls: int = 1, cache: Literal["cold", "hot"] = "cold"
    ) -> float:
        self.asked.add((work.bytes, calls, cache))
        return self.floor


class Haunted(Card):
    """Busy for a while after every turn of one side, by a clock of its own, which nobody else's work slows."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy, self.now = False, 0.0

    def follow(self, side: CandidateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        turn = side.time

        def time(*given: Any) -> Timing:
            timing = turn(*given)
            self.is_busy = True
            return timing

        monkeypatch.setattr(side, "time", time)

    def perf_counter(self) -> float:
        return self.now

    process_time = perf_counter

    def synchronize(self) -> None:
        self.now += 0.2 if self.is_busy else 0.1
        self.is_busy = False


@dataclass
class Ring:
    """Sets duels up."""

    rung: Rung
    folder: Path
    problems: tuple[str, ...] = ("timed",)
    segment: float = 2e-3
    opened: list[CandidateProcess] = field(default_factory=list)

    @contextmanager
    def duel(
        self,
        a: str,
        b: str,
        device: Device,
        cache: Literal["cold", "hot"] = "cold",
        key: bytes = b"secret",
        fitted: dict[str, tuple[int, int]] | None = None,
        most_mixed: int = MAX_MIXED,
    ) -> Iterator[InterleavedDuel]:
        case = self.folder / "cases" / "test" / "affine"
        case = case if case.exists() else write_case(self.folder)
        contract = load_contract(case / "contract.py")
        suite = Suite(problems=self.problems, distribution="normal")
        terms = DuelSettings(
            device,
            self.segment,
            4.0,
            cache,
            SecretRandom(key),
            segment_calls=fitted or {},
            most_mixed=most_mixed,
        )
        sides = self._process(a), self._process(b)
        for side in sides:
            side.await_loaded()
        with InterleavedDuel(contract, suite, sides, terms) as duel:
            yield duel

    def _process(self, source: str) -> CandidateProcess:
        workspace = self.folder / f"side-{len(self.opened)}"
        workspace.mkdir()
        (workspace / "kernel.py").write_text(source)
        dress = LaunchSpec(tensors="torch", launch="graph")
        side = Side(tree=str(workspace))
        self.opened.append(
            CandidateProcess(self.rung, side, "kernel.py:run", dress, ProcessLimits(20, 2, 2 << 30))
        )
        return self.opened[-1]


@pytest.fixture
def ring(rung: Rung, tmp_path: Path) -> Iterator[Ring]:
    tmp_path.chmod(0o755)
    made = Ring(rung, tmp_path)
    yield made
    for process in made.opened:
        process.close()


def test_orders_come_in_couples_and_by_a_coin(ring: Ring) -> None:
    with ring.duel(KERNEL, KERNEL, Host()) as duel:
        duel.size_segments()
        orders = [(duel.time_solo_block if n % 3 else duel.time_block)().order for n in range(40)]
    couples = [tuple(orders[n : n + 2]) for n in range(0, 40, 2)]  # all alike once in half a million runs
    assert set(couples) == {("ABBA", "BAAB"), ("BAAB", "ABBA")}


def test_a_cpus_block_is_read_by_the_judges_clock_alone(ring: Ring) -> None:
    with ring.duel(KERNEL, KERNEL, Host()) as duel:
        duel.size_segments()
        block, alone = duel.time_block(), duel.time_solo_block()
        (workload,) = duel.workloads
    assert (block.events, block.whole, alone.events) == (None, None, None)
    assert (workload.lead_in_calls, workload.arena.layout.slots) == (0, max(workload.calls))
    assert all(0 < seconds < 0.1 for seconds in (*block.seconds, *alone.seconds))


def test_a_gpus_block_has_three_clocks_and_a_lead_in(ring: Ring) -> None:
    device = Card()
    with ring.duel(KERNEL, KERNEL, device) as duel:
        duel.size_segments()
        device.done.clear()
        block = duel.time_block()
        (workload,) = duel.workloads
        assert workload.lead_in_calls == math.ceil(max(workload.calls) / 8)
        assert workload.arena.layout.slots == 2 * workload.lead_in_calls + max(workload.calls)
        assert device.done == ["rest", "flush", "synchronize"] * 4, "before each segment"
        alone = duel.time_solo_block()
    # the judge's clock is a mean over the calls fed as well
    counted = 1 + workload.lead_in_calls / max(workload.calls)
    for taken, share in ((block, counted), (alone, 1.0)):
        assert taken.events is not None
        assert taken.whole is not None
        assert all(0 < told <= seen * share for told, seen in zip(taken.events, taken.seconds, strict=True))
        assert all(whole > 0 for whole in taken.whole)


@pytest.mark.parametrize("problem", ["odd", "timed"])
def test_a_hot_cache_is_not_flushed_and_holds_all_slots(ring: Ring, problem: str) -> None:
    ring.problems, device = (problem,), Card()
    with ring.duel(KERNEL, KERNEL, device, cache="hot") as duel:
        duel.size_segments()
        duel.time_block()
        (workload,) = duel.workloads
    assert "flush" not in device.done
    assert workload.arena.layout.nbytes <= device.l2_bytes // 2


@pytest.mark.slow(4, only=["Card"])
@pytest.mark.parametrize("device", [Host, Card])
def test_the_quicker_side_is_called_more_often_and_reads_faster(ring: Ring, device: type[Host]) -> None:
    ring.problems, ring.segment = ("small",), 0.1
    with ring.duel(WAITS.format(seconds=0.0005), WAITS.format(seconds=0.02), device()) as duel:
        speed = duel.size_segments()
        block = duel.time_block()
        (workload,) = duel.workloads
    assert speed > 2
    assert workload.calls[0] > 2 * workload.calls[1]
    assert log_ratio(block) > math.log(2)
    assert side_seconds(block, "A") < 1e-2 < 2e-2 < side_seconds(block, "B")


@pytest.mark.slow(3, only=["Host"])
@pytest.mark.parametrize("device", [Host, Card])
def test_sides_that_met_before_are_not_sized_again(ring: Ring, device: type[Host]) -> None:
    sources, host = (WAITS.format(seconds=0.0005), WAITS.format(seconds=0.02)), device()
    ring.problems, ring.segment = ("small",), 0.1
    with ring.duel(*sources, host) as duel:
        duel.prepare_segments()
        fitted = duel.settings.segment_calls
        assert fitted == {"small": duel.workloads[0].calls}
    with ring.duel(*sources, host, fitted=fitted) as duel:
        duel.prepare_segments()
        (workload,) = duel.workloads
        block = duel.time_block()
    assert workload.calls == fitted["small"]
    assert workload.arena.layout.slots == 2 * workload.lead_in_calls + max(workload.calls)
    assert log_ratio(block) > math.log(2)


def test_both_sides_sit_on_one_core_and_the_judge_on_another(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two CPUs")
    monkeypatch.setattr(Card, "cores", lambda card: [(cpu,) for cpu in sorted(before)])
    with ring.duel(KERNEL, KERNEL, Card()) as duel:
        judge, *sides = (os.sched_getaffinity(pid) for pid in (0, *(side.pid for side in duel.sides)))
        assert sides[0] == sides[1]
        assert judge.isdisjoint(sides[0])
        duel.prepare_segments()
        assert duel.time_block().events is not None
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("slow", [0, 1])
def test_a_burst_of_others_work_sizes_no_segment(
    ring: Ring, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second of the first runs takes ten segments more; a call takes a thousandth of one."""
    runs = itertools.count()

    def timed(duel: InterleavedDuel, workload: Workload, side: int) -> Timing:
        run, calls = next(runs), workload.calls[side]
        seconds = 1e-5 + (0.1 / calls if run < 9 and run % 2 == slow else 0.0)
        return Timing(seconds, seconds, seconds)

    monkeypatch.setattr(InterleavedDuel, "_time_segment", timed)
    ring.problems, ring.segment = ("odd",), 0.01
    with ring.duel(KERNEL, KERNEL, Host()) as duel:
        duel.size_segments()
        assert min(duel.workloads[0].calls) > 500, "1 is what a burst would have made of it"


def test_what_a_first_duel_found_is_believed(ring: Ring) -> None:
    """Even where sizing would choose otherwise."""
    with ring.duel(KERNEL, KERNEL, Card(), fitted={"timed": (7, 7)}) as duel:
        duel.prepare_segments()
        assert duel.workloads[0].calls == (7, 7)


def test_problems_count_alike(ring: Ring) -> None:
    ring.problems = ("small", "timed")
    with ring.duel(KERNEL, KERNEL, Card()) as duel:
        duel.size_segments()
        assert [workload.source.problem for workload in duel.workloads] == ["small", "timed"]
        assert duel.time_block().events is not None


def test_the_opponent_is_timed_when_the_candidate_has_ended(ring: Ring) -> None:
    with ring.duel(KERNEL, KERNEL, Card()) as duel:
        duel.size_segments()
        duel.time_block()
        alone = duel.time_opponent_alone(3)
        assert duel.sides[0].is_closed
        assert not Path(f"/proc/{duel.sides[0].pid}").exists()
    assert len(alone) == 3
    assert all(0 < seconds < 0.1 for seconds in alone)
    assert [mapped(side) for side in ring.opened[1:]] == [0]


PICKY = """
once = run
def run(x, y):
    once(x, y)
    if abs(float(x.mean())) > 500:
        y -= 1000
"""
"""Right where the inputs are those of the benchmark."""


def test_what_is_timed_is_checked_on_other_inputs_too(ring: Ring) -> None:
    with ring.duel(KERNEL, KERNEL, Card()) as duel:
        duel.size_segments()
        duel.check_distributions(["offset", "tiny"])
    with ring.duel(KERNEL + PICKY, KERNEL, Card(), most_mixed=0) as duel:  # mixed ones would show it sooner
        duel.size_segments()
        duel.time_block()
        duel.check_distributions(["tiny"])
        with pytest.raises(CandidateFault, match=r"offset \(while timed\)") as caught:
            duel.check_distributions(["offset"])
    assert caught.value.reason is Reason.WRONG_RESULT


AHEAD = """
real = runner.lead

def lead(self, arena, first, count):
    slots = self._arenas[arena].arguments[count:]
    answer = real(self, arena, first, count)
    for x, y in slots:
        run(x, y)
    return answer

def go(self, first, count, fed):
    return {"ns": 20_000 * count}

runner.lead, runner.go = lead, go
"""
"""Does in the lead-in what will be timed, as far as the inputs are there."""


def test_single_calls_cannot_be_done_in_the_lead_in(ring: Ring) -> None:
    with ring.duel(KERNEL + RUNNER + AHEAD, KERNEL, Card()) as duel:
        duel.size_segments()
        duel.time_block()
        with pytest.raises(CandidateFault) as caught:
            duel.time_solo_block()
    assert caught.value.reason is Reason.OUTPUT_NOT_WRITTEN


def mapped(process: CandidateProcess) -> int:
    return Path(f"/proc/{process.pid}/maps").read_text().count("/memfd:hillclimb-arena")


@pytest.mark.parametrize("device", [Host, Card])
def test_nobody_keeps_the_buffers(ring: Ring, device: type[Host]) -> None:
    with ring.duel(KERNEL, KERNEL, device()) as duel:
        duel.size_segments()
        duel.time_block()
        assert [mapped(side) for side in duel.sides] == [1, 1], "nor those of sizing runs"
    assert [mapped(side) for side in ring.opened] == [0, 0]


ILL = {
    "skips a call": (
        Reason.OUTPUT_NOT_WRITTEN,
        "of a segment wrote no whole output",
        "n, once = 0, run\ndef run(x, y):\n    global n\n    n += 1\n    if n % 50: once(x, y)\n",
    ),
    "is wrong": (Reason.WRONG_RESULT, "(while timed)", "def run(x, y):\n    torch.mul(x, 2, out=y)\n"),
    "changes its inputs": (
        Reason.INPUTS_CHANGED,
        "(while timed)",
        "once = run\ndef run(x, y):\n    once(x, y)\n    x.zero_()\n",
    ),
    "goes on where it led in": (
        Reason.OUTPUT_NOT_WRITTEN,
        "of a segment wrote no whole output",
        RUNNER + "go = runner.go\nrunner.go = lambda self, first, count, fed: go(self, 0, first, 0)\n",
    ),
    "leaves the lead-in out": (
        Reason.OUTPUT_NOT_WRITTEN,
        "call 1 of the ",
        RUNNER
        + "def lead(self, arena, first, count):\n    self._lead_in_arena = arena\n    return {'ns': 1}\n"
        "runner.lead = lead\n",
    ),
    "leaves out what feeds it": (
        Reason.OUTPUT_NOT_WRITTEN,
        "call 2 of the ",
        RUNNER + "go = runner.go\nrunner.go = lambda self, first, count, fed: go(self, first, count, 0)\n",
    ),
    "leaves": (
        Reason.EXITED,
        "status 0",
        RUNNER + "runner.go = lambda self, first, count, fed: os._exit(0)\n",
    ),
}


@pytest.mark.parametrize("name", ILL)
def test_what_a_does_wrong_is_its_fault_and_of_b_the_machines(ring: Ring, name: str) -> None:
    reason, says, source = ILL[name]
    with ring.duel(KERNEL + source, KERNEL, Card()) as duel, pytest.raises(CandidateFault) as caught:
        for _ in range(20):
            duel.size_segments()
            duel.time_block()
    assert caught.value.reason is reason
    assert says in caught.value.detail


def test_a_fault_of_b_is_the_machines(ring: Ring) -> None:
    source = KERNEL + RUNNER + "runner.go = lambda self, first, count, fed: os._exit(0)\n"
    with (
        ring.duel(KERNEL, source, Card()) as duel,
        pytest.raises(MachineError, match="incumbent failed in a duel, having passed before: exited"),
    ):
        duel.size_segments()


def test_nothing_is_faster_than_the_device(ring: Ring) -> None:
    device = Physical(0.5)
    with ring.duel(KERNEL, KERNEL, device) as duel, pytest.raises(CandidateFault) as caught:
        duel.size_segments()
    assert caught.value.reason is Reason.TOO_FAST
    assert "this device needs 500000.000 us at the least" in caught.value.detail
    assert device.asked == {(8 * 20_000, 8, "cold")}


def test_nor_is_what_it_says_of_itself(ring: Ring) -> None:
    liar = KERNEL + RUNNER + "go = runner.go\n"
    liar += "runner.go = lambda self, first, count, fed: {**go(self, first, count, fed), 'ns': 1}\n"
    with ring.duel(liar, KERNEL, Physical(1e-7)) as duel, pytest.raises(CandidateFault) as caught:
        duel.size_segments()
    assert caught.value.reason is Reason.TOO_FAST
    with ring.duel(KERNEL, KERNEL, Physical(1e-7)) as duel:
        duel.size_segments()


@pytest.mark.parametrize("guilty", [0, 1])
def test_work_that_runs_on_after_a_turn_is_put_down_to_its_side(
    ring: Ring, guilty: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hillclimb.harness.duel.residual_work.MIN_REFRESHES", 3)
    monkeypatch.setattr("hillclimb.harness.duel.residual_work.MIN_SLOW_REFRESHES", 3)
    ring.problems, device = ("small",), Haunted()
    monkeypatch.setattr("hillclimb.harness.duel.duel.time", device)
    expected: Any = (CandidateFault, MachineError)[guilty]
    with ring.duel(KERNEL, KERNEL, device) as duel, pytest.raises(expected) as caught:
        device.follow(duel.sides[guilty], monkeypatch)
        duel.size_segments()
        for _ in range(20):
            duel.time_block()
    assert "turns, and never after the other side's" in str(caught.value)
    assert str(Reason.LEFT_WORK_RUNNING) in str(caught.value)


def test_a_crowded_block_says_so(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow whoever ran last: nobody is to blame, and the block is measured again."""

    class Shared(Card):
        busy, now = 0.0, 0.0

        def perf_counter(self) -> float:
            return self.now

        process_time = perf_counter

        def synchronize(self) -> None:
            self.now += 0.03 + self.busy

    device = Shared()
    monkeypatch.setattr("hillclimb.harness.duel.duel.time", device)
    with ring.duel(KERNEL, KERNEL, device) as duel:
        duel.size_segments()
        for _ in range(3):
            duel.time_block()
        device.busy = 0.2
        environment = duel.time_block().environment
    assert environment.crowded
    assert environment.crowded >= 3


class Judging(CpuDevice):
    """Calls the blocks contaminated whose steal says so."""

    def disturbances(self, environment: Environment) -> tuple[str, ...]:
        return ("steal",) if environment.steal > 0 else ()


def blocks(told: str) -> Iterator[Block]:
    """One for each letter: x is contaminated."""
    for number, letter in enumerate(told):
        yield Block(
            order="ABBA", seconds=(number + 1.0,) * 4, environment=Environment(steal=float(letter == "x"))
        )


@pytest.mark.parametrize(
    ("told", "count", "kept"),
    [
        ("...", 3, [(1, 0), (2, 0), (3, 0)]),
        ("x.xx", 2, [(2, 1), (4, 1)]),
        ("xx.x", 2, [(3, 2), (4, 0)]),
        ("xxxx", 2, [(3, 2), (4, 0)]),
        (".x.x.", 3, [(1, 0), (3, 1), (5, 1)]),
        ("xxxxxxxxx", 5, [(5, 4), (6, 0), (7, 0), (8, 0), (9, 0)]),
        ("xxx.xxxx", 4, [(4, 3), (6, 1), (7, 0), (8, 0)]),
        ("xxxxxx.x.....", 8, [(5, 4), (6, 0), (7, 0), (9, 1), (10, 0), (11, 0), (12, 0), (13, 0)]),
        ("", 0, []),
    ],
)
def test_contaminated_blocks_are_dropped_as_long_as_there_is_hope(
    told: str, count: int, kept: list[tuple[int, int]]
) -> None:
    source = blocks(told)
    found = list(clean_blocks(Judging(), lambda: next(source), count))
    assert [(round(block.seconds[0]), len(dropped)) for block, dropped in found] == kept
    assert list(source) == [], "and none was taken for nothing"


def test_real_blocks_are_dropped_by_what_the_device_says(ring: Ring) -> None:
    class Restless(Host):
        told = 0

        def disturbances(self, environment: Environment) -> tuple[str, ...]:
            self.told += 1
            return ("unrest", "heat") if self.told in (1, 3, 4) else ()

    device = Restless()
    with ring.duel(KERNEL, KERNEL, device) as duel:
        duel.size_segments()
        found = list(clean_blocks(device, duel.time_block, 4))
    assert [len(dropped) for _, dropped in found] == [1, 2, 0, 0]
    pair = pair_record("screen", "main", found)
    assert (pair.dropped, pair.dropped_for) == (3, ("unrest", "heat") * 3)
