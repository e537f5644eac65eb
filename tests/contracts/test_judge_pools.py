"""Every judge keeps the promises of hillclimb.harness.judge.protocol.Judge, a simulated one those that it makes.

The real ones judge a real case in real sandboxes: one in a process of its own, one in this process.
"""

from __future__ import annotations

import ast
import inspect
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.errors import HillclimbError, MachineError, UsageError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.metric_judge import MetricJudge
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.judge.protocol import EmptyAnswer, Judge
from hillclimb.harness.records import (
    Confirmation,
    Interval,
    Progress,
    Reason,
    Record,
    Screening,
    Side,
    Watch,
)
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from hillclimb.harness.surfaces.shell_json.shell_json import ShellJson
from tests.fakes.cases import HONEST, QUICK, repeated, write_case, write_workspace
from tests.fakes.command import KERNEL as COUNTED
from tests.fakes.command import write_command_case
from tests.fakes.hinted import Hinted
from tests.fakes.judge import SimulatedJudge
from tests.fakes.ridge import Ridge, write_ridge
from tests.fakes.ridge_judge import RidgeJudge
from tests.fakes.toy import kernel, write_toy

ROOT = Path(__file__).resolve().parents[2]

ALPHA = 0.05
RAISES = "def run(x, y):\n    raise ValueError('as a test wants it')\n"

STAGES = ("prepare", "gate", "screen", "decide", "guardrail", "sanitize", "report", "cumulative")
"""Of a trial, in the order in which each is first told."""

Answer = TypeVar("Answer", bound=Record)


@dataclass(frozen=True)
class Heard(Generic[Answer]):
    """An answer, and what was told on the way to it."""

    answer: Answer
    told: Sequence[Progress]


def hear(ask: Callable[[Watch], Answer]) -> Heard[Answer]:
    told: list[Progress] = []
    return Heard(ask(told.append), told)


@dataclass
class Bench:
    """A judge, and what it is asked about: `fast` is several times as fast as `slow`."""

    name: str
    judge: Judge
    honest: Side
    fast: Side
    slow: Side
    wrong: Side
    case: Case | None = None
    raising: Side | None = None

    @property
    def times_pairs(self) -> bool:
        return self.case is not None or self.name == "metric"


def open_local(root: Path) -> Bench:
    folder = write_case(root, settings=QUICK)
    return real(root, "local", folder, LocalJudge(folder, root / "judge.log"))


def open_in_process(root: Path) -> Bench:
    torch.set_num_threads(1)  # as in a judge's process
    folder = write_case(root, settings=QUICK)
    judge = CaseJudge(Case(folder), choose_rung(trust_workspace=False), open_device("cpu"))
    return real(root, "in_process", folder, judge)


def real(root: Path, name: str, case: Path, judge: Judge) -> Bench:
    kernels = {
        "honest": HONEST,
        "fast": repeated(4),
        "slow": repeated(80),
        "wrong": "def run(x, y): y[:] = 0\n",
        "raising": RAISES,
    }
    sides = {
        side: Side(tree=str(write_workspace(root / side / "workspace", source)))
        for side, source in kernels.items()
    }
    return Bench(name, judge, **sides, case=Case(case))


def open_metric(root: Path) -> Bench:
    """Over a command, which tells what a workspace counts."""
    folder, seed = write_command_case(root), b"seed"
    settings = folder / "case.yaml"
    settings.write_text(settings.read_text().replace("  - {suite: batch, max_slowdown: 0.05}\n", ""))
    case, rung, device = Case(folder), choose_rung(trust_workspace=False), open_device("cpu")
    surface = ShellJson(case, rung, device, SecretRandom(seed))

    def side(name: str, was: str = "", becomes: str = "") -> Side:
        (root / name).mkdir()
        (root / name / "kernel.py").write_text(COUNTED.replace(was, becomes) if was else COUNTED)
        return Side(tree=str(root / name))

    return Bench(
        "metric",
        MetricJudge(case, rung, device, surface, seed),
        honest=side("honest"),
        fast=side("fast", "100", "50"),
        slow=side("slow"),
        wrong=side("wrong", "% 97", "% 96"),
    )


def open_simulated(root: Path) -> Bench:
    return over_toy(root, "simulated", SimulatedJudge())  # type: ignore[arg-type]


def open_hinted(root: Path) -> Bench:
    return over_toy(root, "hinted", Hinted())  # type: ignore[arg-type]


def over_toy(root: Path, name: str, judge: Judge) -> Bench:
    workspace = write_toy(root) / "workspace"

    def side(name: str, source: str) -> Side:
        shutil.copytree(workspace, root / name)
        (root / name / "kernel.py").write_text(source)
        return Side(tree=str(root / name))

    return Bench(
        name,
        judge,
        honest=side("honest", kernel(1.0)),
        fast=side("fast", kernel(20.0)),
        slow=side("slow", kernel(1.0)),
        wrong=side("wrong", kernel(6.0, "wrong_result")),
    )


def open_ridge(root: Path) -> Bench:
    ridge = Ridge("edits", 2)
    workspace = write_ridge(root) / "workspace"
    gainful = max(ridge.traits.values(), key=lambda trait: (not trait.fails, trait.gain))
    failing = next(trait for trait in ridge.traits.values() if trait.fails)

    def side(name: str, *traits: str) -> Side:
        shutil.copytree(workspace, root / name)
        (root / name / "kernel.py").write_text("".join(f"{trait}\n" for trait in traits))
        for trait in traits:
            (root / name / f"{trait.partition('/')[0]}.py").write_text(f"{trait}\n")
        return Side(tree=str(root / name))

    return Bench(
        "ridge",
        RidgeJudge(ridge),  # type: ignore[arg-type]
        honest=side("honest"),
        fast=side("fast", gainful.name),
        slow=side("slow"),
        wrong=side("wrong", failing.name),
    )


OPENERS: dict[str, Callable[[Path], Bench]] = {
    "local": open_local,
    "in_process": open_in_process,
    "metric": open_metric,
    "simulated": open_simulated,
    "hinted": open_hinted,
    "ridge": open_ridge,
}
REAL = ("local", "in_process")
real_ones = pytest.mark.parametrize("bench", REAL, indirect=True)
others = pytest.mark.parametrize("bench", [n for n in OPENERS if n not in REAL], indirect=True)
IMPLEMENTATIONS = (LocalJudge, CaseJudge, MetricJudge, SimulatedJudge, Hinted, RidgeJudge)


def folder_of(factory: pytest.TempPathFactory, name: str) -> Path:
    """That a sandbox's user may enter."""
    made = factory.mktemp(name)
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bench]]:
    """Each is opened once, by the first test that asks for it."""
    with ExitStack() as stack:

        @cache
        def opened(name: str) -> Bench:
            made = OPENERS[name](folder_of(tmp_path_factory, name))
            stack.callback(made.judge.close)
            return made

        yield opened


@pytest.fixture(params=OPENERS)
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    return benches(request.param)


def test_it_describes_itself_the_same_twice(bench: Bench) -> None:
    first, second = bench.judge.describe(), bench.judge.describe()
    assert first == second
    for digest in (first.contract, first.benchmarks, first.harness, first.seed_commitment):
        assert len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    assert first.sandbox in ("bubblewrap", "landlock", "none")
    assert first.device and first.device_id and first.software["python"]


@real_ones
def test_its_digests_are_those_of_the_files(bench: Bench) -> None:
    assert bench.case is not None
    found = bench.judge.describe()
    assert found.contract == contract_digest(bench.case)
    assert found.benchmarks == benchmarks_digest(bench.case)
    assert found.harness == harness_digest()
    assert len({found.contract, found.benchmarks, found.harness}) == 3


def test_the_gate_passes_an_honest_side(bench: Bench) -> None:
    heard = hear(lambda watch: bench.judge.gate(bench.honest, watch))
    report = heard.answer
    assert (report.passed, report.reason, report.detail) == (True, None, "")
    assert report.runs > 0
    assert 0 <= report.worst <= 1
    if bench.case:
        problem, _, _ = report.worst_at.partition("/")
        assert problem.partition("~")[0] in ("small", "odd", "timed"), "a listed one, or a neighbour of one"
    expect_order(bench, heard, {"gate"})


def test_the_gate_rejects_a_wrong_side_with_a_reason(bench: Bench) -> None:
    heard = hear(lambda watch: bench.judge.gate(bench.wrong, watch))
    report = heard.answer
    assert (report.passed, report.reason) == (False, Reason.WRONG_RESULT)
    assert report.detail
    expect_order(bench, heard, {"gate"})


@real_ones
def test_what_raises_is_rejected_for_that(bench: Bench) -> None:
    assert bench.raising is not None
    report = bench.judge.gate(bench.raising, ignore)
    assert (report.passed, report.reason, report.runs) == (False, Reason.RAISED, 0)
    assert "as a test wants it" in report.detail


def test_a_gate_is_no_score(bench: Bench) -> None:
    """Of what did not pass nothing is timed, measured or reckoned."""
    screened = hear(lambda watch: bench.judge.screen(bench.wrong, bench.slow, watch))
    confirmed = hear(lambda watch: bench.judge.confirm(bench.wrong, bench.slow, bench.slow, ALPHA, watch))
    for heard in (screened, confirmed):
        answer = heard.answer
        assert not answer.gate.passed
        assert answer.reason is answer.gate.reason is Reason.WRONG_RESULT
        assert answer.detail == answer.gate.detail
        assert (answer.pairs, answer.speedup) == ((), None)
        assert not {progress.stage for progress in heard.told} & {"screen", "decide", "report"}
    found = confirmed.answer
    assert (found.e_value, found.cumulative, found.seconds_per_call) == (0, None, None)
    assert found.guardrails == ()


@others
def test_a_win_is_screened_and_confirmed_alike(bench: Bench) -> None:
    expect_a_win(bench)


@pytest.mark.clock
@pytest.mark.slow(7, only=["in_process"])
@real_ones
def test_a_win_by_the_clock_is_screened_and_confirmed_alike(bench: Bench) -> None:
    expect_a_win(bench)


def expect_a_win(bench: Bench) -> None:
    screened = hear(lambda watch: bench.judge.screen(bench.fast, bench.slow, watch))
    confirmed = hear(lambda watch: bench.judge.confirm(bench.fast, bench.slow, bench.slow, ALPHA, watch))
    screening, confirmation = screened.answer, confirmed.answer
    for answer in (screening, confirmation):
        assert (answer.gate.passed, answer.gate.reason) == (True, None)
        assert answer.reason is None, answer.detail
        assert answer.speedup is not None
    assert screening.speedup > 1.1
    assert 0.2 < confirmation.speedup.estimate / screening.speedup < 5
    expect_sound(confirmation.speedup)
    assert confirmation.speedup.low > 1
    assert confirmation.cumulative is not None
    expect_sound(confirmation.cumulative)
    assert confirmation.alpha == ALPHA
    assert confirmation.seconds_per_call is not None and confirmation.seconds_per_call > 0
    expect_order(bench, screened, {"gate", "screen"})
    expect_order(bench, confirmed, {"gate", "decide", "report"} if bench.times_pairs else {"gate"})
    if bench.name != "ridge":
        expect_evidence(screening, confirmation)
    if bench.times_pairs:
        reported = sum(pair.stage == "report" for pair in confirmation.pairs)
        assert reported == confirmation.speedup.pairs, "what is reported was measured apart from the decision"
        assert confirmation.cumulative == confirmation.speedup, "the incumbent is the baseline"


def expect_evidence(screening: Screening, kept: Confirmation) -> None:
    assert kept.e_value >= 1 / kept.alpha
    assert "decide" in {pair.stage for pair in kept.pairs}
    assert [pair.stage for pair in screening.pairs] == ["screen"]
    for pair in (*screening.pairs, *kept.pairs):
        assert pair.blocks
        assert all(seconds > 0 for block in pair.blocks for seconds in block.seconds)


def expect_sound(interval: Interval) -> None:
    assert 0 < interval.low <= interval.estimate <= interval.high
    assert interval.low < interval.high
    assert 0.5 < interval.confidence < 1
    assert interval.pairs >= 2


@others
def test_what_is_slower_is_rejected_by_both(bench: Bench) -> None:
    expect_slower(bench)


@pytest.mark.clock
@pytest.mark.slow(7, only=["in_process"])
@real_ones
def test_what_is_slower_by_the_clock_is_rejected_by_both(bench: Bench) -> None:
    expect_slower(bench)


def expect_slower(bench: Bench) -> None:
    screened = hear(lambda watch: bench.judge.screen(bench.slow, bench.fast, watch))
    confirmed = hear(lambda watch: bench.judge.confirm(bench.slow, bench.fast, bench.fast, ALPHA, watch))
    screening, confirmation = screened.answer, confirmed.answer
    assert screening.gate.passed and confirmation.gate.passed
    assert screening.speedup is not None and screening.speedup < 0.95
    assert screening.reason is Reason.SLOWER
    assert confirmation.reason in (Reason.SLOWER, Reason.NO_PROVEN_GAIN)
    assert confirmation.e_value < 1 / confirmation.alpha
    expect_order(bench, confirmed, {"gate", "decide"} if bench.times_pairs else {"gate"})
    if bench.times_pairs:
        unreported = (confirmation.speedup, confirmation.cumulative, confirmation.seconds_per_call)
        assert unreported == (None, None, None), "of what was not kept no speedup is reported"
        assert confirmation.detail


def test_a_hint_changes_no_verdict(bench: Bench) -> None:
    hints = [(bench.wrong, bench.honest), (bench.honest, bench.wrong), (bench.honest, bench.honest)]
    if bench.case:
        hints.append((Side(tree="/nowhere", knobs={"NO_SUCH": "knob"}), bench.honest))
    for side, parent in hints:
        assert bench.judge.prepare(side, parent) == EmptyAnswer()
    assert bench.judge.gate(bench.honest, ignore).passed
    assert bench.judge.gate(bench.wrong, ignore).reason is Reason.WRONG_RESULT
    assert bench.judge.screen(bench.wrong, bench.honest, ignore).reason is Reason.WRONG_RESULT


@pytest.mark.slow(4, but=["in_process"])
def test_a_comparison_is_of_the_last_over_the_first(bench: Bench) -> None:
    heard = hear(lambda watch: bench.judge.compare(bench.slow, bench.fast, "cumulative", watch))
    found = heard.answer
    expect_sound(found.speedup)
    assert found.speedup.estimate > 1.1
    first, last = found.seconds_per_call
    assert first > 0 and last > 0
    assert found.pair_sd > 0
    if bench.name != "ridge":
        assert 0.2 < found.speedup.estimate / (first / last) < 5
        assert {pair.stage for pair in found.pairs} == {"cumulative"}
        assert {"cumulative"} <= {progress.stage for progress in heard.told} <= {"prepare", "cumulative"}


@pytest.mark.slow(6)
def test_a_profile_is_shares_largest_first(bench: Bench) -> None:
    heard = hear(lambda watch: bench.judge.profile(bench.slow, watch))
    found = heard.answer
    if bench.name == "metric":
        assert (found.problems, found.buckets) == ((), ()) and found.detail
        return
    assert found.problems
    assert all(problem.seconds_per_call > 0 for problem in found.problems)
    shares = [bucket.share for bucket in found.buckets]
    assert shares and shares == sorted(shares, reverse=True)
    assert all(0 <= share <= 1 for share in shares) and sum(shares) <= 1.001
    if bench.name != "ridge":
        assert {progress.stage for progress in heard.told} == {"profile"}
    if bench.case:
        assert [problem.problem for problem in found.problems] == ["timed"]
        assert (found.problems[0].flops, found.problems[0].bytes) == (40_000, 160_000)
        assert found.ceilings is not None and found.ceilings.flops > 0


@real_ones
def test_a_contract_is_tried_without_a_candidate(bench: Bench) -> None:
    heard = hear(bench.judge.check_oracle)
    assert heard.answer.tried > 0
    assert heard.answer.accepted == ()
    assert {progress.stage for progress in heard.told} == {"oracle"}


def expect_order(bench: Bench, heard: Heard[Any], stages: set[str]) -> None:
    """These stages were told, preparation besides, and in order; nothing is asked of the ridge's judge."""
    if bench.name == "ridge":
        return
    told = heard.told
    assert {progress.stage for progress in told} - {"prepare"} == stages
    first = list(dict.fromkeys(progress.stage for progress in told))
    assert first == sorted(first, key=STAGES.index)
    for _, group in groupby(told, key=lambda progress: progress.stage):
        done = [progress.done for progress in group]
        assert done == sorted(done)
    for progress in told:
        assert 0 <= progress.done <= progress.of or progress.of == 0
    for stage in ("screen", "decide"):
        done = [progress.done for progress in told if progress.stage == stage]
        assert done == sorted(set(done)), "each is told once"


@real_ones
def test_the_machines_and_the_askers_faults_are_nobodys_verdict_and_it_goes_on(bench: Bench) -> None:
    assert bench.raising is not None
    with pytest.raises(MachineError, match="incumbent failed"):
        bench.judge.screen(bench.honest, bench.raising, ignore)
    with pytest.raises(UsageError, match="no Triton kernels"):
        bench.judge.lanes(bench.honest, ignore)
    with pytest.raises(HillclimbError, match="nowhere"):
        bench.judge.gate(Side(tree="/nowhere"), ignore)
    assert bench.judge.gate(bench.honest, ignore).passed


@dataclass
class Closing:
    """A judge that was asked something and closed twice."""

    bench: Bench
    held: list[bool] = field(default_factory=list)
    """Whether a process had the side's tree, each time that progress was told."""


@pytest.fixture(scope="module", params=OPENERS)
def closing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Closing:
    made = Closing(OPENERS[request.param](folder_of(tmp_path_factory, f"closing-{request.param}")))
    bench = made.bench
    bench.judge.gate(bench.honest, lambda progress: made.held.append(is_held(bench.honest.tree)))
    bench.judge.close()
    bench.judge.close()
    return made


def is_held(tree: str) -> bool:
    """Whether a process on this machine names the tree on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if tree.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.slow(3, but=["in_process", "simulated", "hinted", "ridge"])
def test_closing_ends_every_process_and_closing_twice_does_no_harm(closing: Closing) -> None:
    assert any(closing.held) == bool(closing.bench.case)
    assert not is_held(closing.bench.honest.tree)


QUESTIONS: dict[str, Callable[[Bench], object]] = {
    "describe": lambda bench: bench.judge.describe(),
    "prepare": lambda bench: bench.judge.prepare(bench.honest, bench.honest),
    "gate": lambda bench: bench.judge.gate(bench.honest, ignore),
    "check_oracle": lambda bench: bench.judge.check_oracle(ignore),
    "screen": lambda bench: bench.judge.screen(bench.fast, bench.slow, ignore),
    "confirm": lambda bench: bench.judge.confirm(bench.fast, bench.slow, bench.slow, ALPHA, ignore),
    "compare": lambda bench: bench.judge.compare(bench.slow, bench.fast, "noise", ignore),
    "profile": lambda bench: bench.judge.profile(bench.fast, ignore),
    "lanes": lambda bench: bench.judge.lanes(bench.fast, ignore),
}


@pytest.mark.slow(10, only=["local"])
@pytest.mark.parametrize("closing", ["local", "in_process"], indirect=True, scope="module")
def test_a_question_after_the_end_is_an_error(closing: Closing) -> None:
    for ask in QUESTIONS.values():
        with pytest.raises(HillclimbError):
            ask(closing.bench)


def test_every_question_is_asked_here() -> None:
    named = {name for name, _ in inspect.getmembers(Judge, inspect.isfunction) if not name.startswith("_")}
    assert named == {*QUESTIONS, "close"}


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_it_can_be_asked_every_question_in_the_same_words(kind: type[Any]) -> None:
    for name in (*QUESTIONS, "close"):
        promised, given = (inspect.signature(getattr(one, name)).parameters for one in (Judge, kind))
        assert [(p.name, p.default) for p in promised.values()] == [
            (p.name, p.default) for p in given.values()
        ], name


def test_no_implementation_is_left_out() -> None:
    """Read off the syntax: a class that screens and confirms, or is made out of one that does, is a judge."""
    found: set[str] = set()
    for path in [*(ROOT / "harness/judge").glob("*.py"), *sorted((ROOT / "tests/fakes").glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
                methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
                if methods >= {"describe", "screen", "confirm"} or "SimulatedJudge" in map(
                    ast.unparse, node.bases
                ):
                    found.add(node.name)
    assert found == {kind.__name__ for kind in IMPLEMENTATIONS}


def ignore(progress: Progress) -> None:
    """Nobody watches."""
