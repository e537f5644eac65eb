"""Cases whose surface is shell_json, judged by a real command in a real sandbox."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.errors import CaseError, IncumbentFault, UsageError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from hillclimb.harness.surfaces.gains import values_of
from hillclimb.harness.surfaces.shell_json.shell_json import CommandRun, ShellJson
from tests.fakes.command import COMMAND, KERNEL, SETTINGS, write_command_case

MakeSide = Callable[[str], Side]


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_command_case(tmp_path)


@pytest.fixture
def judge(folder: Path, tmp_path: Path) -> Iterator[LocalJudge]:
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as one:
        yield one


@pytest.fixture
def side(tmp_path: Path) -> MakeSide:
    """A workspace with this kernel."""

    def make(kernel: str) -> Side:
        tree = tmp_path / f"side{len(list(tmp_path.glob('side*')))}"
        tree.mkdir()
        (tree / "kernel.py").write_text(kernel)
        return Side(tree=str(tree))

    return make


FASTER = KERNEL.replace('"TICKS", 100', '"TICKS", 80')


def test_a_sound_case_passes_the_gate(judge: LocalJudge, side: MakeSide) -> None:
    report = judge.gate(side(KERNEL), ignore)
    assert report.passed, report.detail
    assert report.runs == 2
    assert judge.check_oracle(ignore).tried == 0
    assert judge.profile(side(KERNEL), ignore).problems == ()


@pytest.mark.clock
def test_a_planted_gain_is_kept_with_its_metrics(judge: LocalJudge, side: MakeSide) -> None:
    fast, slow = side(FASTER), side(KERNEL)
    screening = judge.screen(fast, slow, ignore)
    assert screening.reason is None, screening.detail
    assert screening.speedup == pytest.approx(1.25, rel=0.02)
    kept = judge.confirm(fast, slow, slow, 0.01, ignore)
    assert kept.reason is None, kept.detail
    assert kept.speedup is not None and kept.speedup.low > 1.2
    told = {(one.suite, one.metric): one for one in kept.metrics}
    assert set(told) == {
        (suite, metric) for suite in ("main", "batch") for metric in ("wall", "tokens_per_second", "memory")
    }
    rate = told["main", "tokens_per_second"]
    assert rate.value == pytest.approx(100, rel=0.02) and rate.before == pytest.approx(80, rel=0.02)
    assert (rate.unit, rate.direction) == ("tok/s", "higher")
    assert told["main", "memory"].gain.low < 1 < told["main", "memory"].gain.high * 1.01
    assert [(rail.suite, rail.metric, rail.passed) for rail in kept.guardrails] == [
        ("main", "memory", True),
        ("batch", "", True),
    ]
    assert {block.order for pair in kept.pairs for block in pair.blocks} <= {"AB", "BA"}


def test_a_gain_over_the_baseline_is_measured(judge: LocalJudge, side: MakeSide) -> None:
    best, better, base = side(FASTER.replace("80", "64")), side(FASTER), side(KERNEL)
    kept = judge.confirm(best, better, base, 0.01, ignore)
    assert kept.speedup is not None and kept.cumulative is not None
    assert kept.speedup.estimate == pytest.approx(1.25, rel=0.02)
    assert kept.cumulative.estimate == pytest.approx(1.5625, rel=0.02)


def test_knobs_are_environment_variables(judge: LocalJudge, side: MakeSide) -> None:
    plain = side(KERNEL)
    swept = plain.model_copy(update={"knobs": {"TICKS": "50"}})
    assert judge.screen(swept, plain, ignore).speedup == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (FASTER.replace("64", "80"), "suite main: memory"),
        (FASTER.replace("TICKS, 64", "TICKS * (1.6 if batch > 8 else 1), 64"), "suite batch: tokens_per"),
    ],
    ids=["another metric", "another suite"],
)
def test_a_broken_guardrail_is_named(judge: LocalJudge, side: MakeSide, kernel: str, told: str) -> None:
    candidate, incumbent = side(kernel), side(KERNEL)
    screening = judge.screen(candidate, incumbent, ignore)
    assert screening.reason is Reason.GUARDRAIL and told in screening.detail
    confirmed = judge.confirm(candidate, incumbent, incumbent, 0.01, ignore)
    assert confirmed.reason is Reason.GUARDRAIL and told in confirmed.detail
    assert confirmed.speedup is None and not confirmed.guardrails[-1].passed


@pytest.mark.slow(40)
def test_equal_sides_win_nothing(judge: LocalJudge, side: MakeSide) -> None:
    one, other = side(KERNEL), side(KERNEL)
    for _ in range(20):
        assert judge.confirm(one, other, other, 0.01, ignore).reason is not None


def test_noise_contains_one(judge: LocalJudge, side: MakeSide) -> None:
    noise = judge.compare(side(KERNEL), side(KERNEL), "noise", ignore)
    assert noise.speedup.low < 1.01 and noise.speedup.high > 0.99
    assert noise.seconds_per_call[0] > 0
    assert {metric.metric for metric in noise.metrics} == {"wall", "tokens_per_second", "memory"}


WRONG = {
    "a slower one": (KERNEL.replace("100", "130"), Reason.SLOWER),
    "a wrong result": (KERNEL.replace("% 97", "% 96"), Reason.WRONG_RESULT),
    "it raises": (KERNEL.replace("return", "raise ValueError\n    return"), Reason.RAISED),
    "it leaves": (KERNEL.replace("return", "os._exit(0)\n    return"), Reason.BROKE_PROTOCOL),
    "it is killed": (KERNEL.replace("return", "os.kill(os.getpid(), 11)\n    return"), Reason.CRASHED),
    "no number": (KERNEL.replace("TICKS, 64", 'TICKS, float("nan")'), Reason.BROKE_PROTOCOL),
    "nothing at all": (KERNEL.replace("TICKS, 64", "TICKS, 0"), Reason.BROKE_PROTOCOL),
    "more than can be": (KERNEL.replace("TICKS, 64", "TICKS, 1e300"), Reason.BROKE_PROTOCOL),
    "it prints too much": (
        KERNEL.replace("return", "print('x' * (2 << 20))\n    return"),
        Reason.FLOODED_OUTPUT,
    ),
    "it imports what it may not": (f"import socket\n{KERNEL}", Reason.POLICY),
}


@pytest.mark.parametrize(("kernel", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_called_by_its_name(
    folder: Path, tmp_path: Path, side: MakeSide, kernel: str, reason: Reason
) -> None:
    settings = folder / "case.yaml"
    settings.write_text(settings.read_text().replace("[os, pathlib", "[os, os.*, pathlib"))
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as judge:
        screening = judge.screen(side(kernel), side(KERNEL), ignore)
    assert screening.reason is reason, screening.detail
    assert screening.gate.passed is (reason is Reason.SLOWER)


def test_a_command_that_does_not_end(folder: Path, tmp_path: Path, side: MakeSide) -> None:
    settings = folder / "case.yaml"
    settings.write_text(settings.read_text().replace("seconds: 20", "seconds: 1"))
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as judge:
        report = judge.gate(side(KERNEL.replace("return", "while True: pass\n    return")), ignore)
    assert report.reason is Reason.HUNG, report.detail


def test_an_incumbent_that_fails_is_not_the_candidates_fault(judge: LocalJudge, side: MakeSide) -> None:
    with pytest.raises(IncumbentFault, match="wrong_result"):
        judge.screen(side(KERNEL), side(KERNEL.replace("% 97", "% 96")), ignore)


def test_the_incumbent_runs_before_every_timed_run(
    folder: Path, side: MakeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run leaves in the machine's caches, or takes out of them, meets both sides alike."""
    candidate, incumbent = side(KERNEL), side(KERNEL)
    ran: list[Side] = []

    def run(self: ShellJson, side: Side, suite: str, seed: int) -> CommandRun:
        ran.append(side)
        return CommandRun(1.0, {"tokens_per_second": 1.0, "memory": 1.0})

    monkeypatch.setattr(ShellJson, "_run", run)
    rung = choose_rung(trust_workspace=False)
    surface = ShellJson(Case(folder), rung, CpuDevice(), random.Random(3))
    with surface.open_pair(candidate, incumbent) as pair:
        orders = {pair.time_block("main").order for _ in range(12)}
    assert orders == {"AB", "BA"}
    assert ran[::2] == [incumbent] * 24
    assert sorted(map(ran[1::2].count, (candidate, incumbent))) == [12, 12]


def test_both_sides_of_a_pair_have_one_seed(folder: Path, tmp_path: Path, side: MakeSide) -> None:
    """And no two pairs have the same."""
    (folder / "bench" / "measure.py").write_text(
        COMMAND.replace(
            "print(json.dumps({\n",
            "print(json.dumps({'memory': secret + 1, 'tokens_per_second': 1}))\nsys.exit()\nprint(json.dumps({\n",
        )
    )
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as judge:
        noise = judge.compare(side(KERNEL), side(KERNEL), "noise", ignore)
    seeds = [values_of(block, "memory") for pair in noise.pairs for block in pair.blocks]
    assert all(first == second for first, second in seeds)
    assert len({first for first, _ in seeds}) == 3


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("command:\n  run:", "commands:\n  run:", "runs a command; say which one"),
        ("metric: memory", "metric: memmory", "memory"),
        ("objective: {metric: tokens_per_second, direction: higher", "objective: {metric: time", "wall"),
        ("tokens_per_second, direction: higher", "tokens_per_second", "direction must be 'higher'"),
        ("{suite: batch, max_slowdown", "{suite: main, max_slowdown", "objective's own"),
        ("surface: shell_json", "surface: kernel", "runs no command"),
        ("memory: {unit: MiB", "wall: {unit: MiB", "the judge's own clock"),
        ("memory: {unit: MiB", "wrong: {unit: MiB", "says what is wrong"),
    ],
)
def test_a_slip_in_the_settings_is_told(folder: Path, was: str, becomes: str, told: str) -> None:
    assert was in SETTINGS
    (folder / "case.yaml").write_text(SETTINGS.replace(was, becomes))
    with pytest.raises(CaseError, match=told):
        Case(folder)


def test_a_program_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    (folder / "case.yaml").write_text(SETTINGS.replace("[python, bench/measure.py]", "[no-such-program]"))
    with pytest.raises(CaseError, match="no-such-program"):
        LocalJudge(folder, tmp_path / "judge.log").close()


def test_yardsticks_and_lanes_are_of_kernels(judge: LocalJudge, side: MakeSide) -> None:
    plain = side(KERNEL)
    with pytest.raises(UsageError, match="yardstick"):
        judge.screen(plain, plain.model_copy(update={"is_yardstick": True}), ignore)
    with pytest.raises(UsageError, match="lanes"):
        judge.lanes(plain, ignore)
