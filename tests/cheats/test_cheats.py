"""The real judge rejects every cheat for its own reason, and accepts what is honest however tricky it looks.

Here is what shows on any machine: the gate, and what the timed calls are checked for. What only a clock can tell is
judged to its end by scripts/experiments/cheat_rates.py; one such cheat stands here for all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import pytest
from _pytest.mark import MarkDecorator, ParameterSet

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import ForkableRung, choose_rung
from tests.cheats import cases, tables
from tests.cheats.declared import FOLDER, Candidate, Verdict, find, matches, names
from tests.cheats.families import FAMILIES, NO_KERNEL
from tests.selection.one_of_each import one_of_each

CHEATS, HONEST = find("cpu"), find("honest/cpu")

SLOW_TO_TELL = {"works_ahead_by_base"}
"""Confirmed here; others that need a confirmation are left to the script."""

TRIES = 16
"""For what the draw of a gate's problems and inputs may hide."""

TOLD_BY_A_CLOCK = {Reason.SLOWER, Reason.NO_PROVEN_GAIN, Reason.NOT_PER_CALL}


def judged(cheats: Sequence[Candidate], expected: Callable[[Candidate], Verdict]) -> list[ParameterSet]:
    """Parameters of a test, marked where the clock decides; the first of each family and answer runs always."""

    def marks(cheat: Candidate) -> list[MarkDecorator]:
        return [pytest.mark.clock] if _needs_a_clock(cheat, expected(cheat)) else []

    def alike(cheat: Candidate) -> Hashable:
        return cheat.declared.family, expected(cheat).reason, expected(cheat).stage

    return one_of_each(cheats, 1, alike=alike, names=names(cheats), marks=marks)


def _needs_a_clock(cheat: Candidate, expected: Verdict) -> bool:
    return _is_judged_to_the_end(cheat, expected) and bool(TOLD_BY_A_CLOCK & set(expected.reason))


def _is_judged_to_the_end(cheat: Candidate, expected: Verdict) -> bool:
    if expected.stage == "confirm":
        return cheat.name in SLOW_TO_TELL and expected is cheat.declared
    return expected.stage == "screen"


class Court:
    """A judge for every case that is asked for, and workspaces to bring before them."""

    def __init__(self, root: Path) -> None:
        self._root, self._judges = root, dict[tuple[str, str], tuple[CaseJudge, Side]]()

    @cached_property
    def _rung(self) -> ForkableRung:
        return choose_rung(trust_workspace=False)

    def gate(self, candidate: Candidate) -> tuple[Reason | None, str]:
        judge, _ = self._judge(candidate)
        report = judge.gate(self._side(candidate), _ignore)
        return report.reason, report.detail

    def screen(self, candidate: Candidate) -> tuple[Reason | None, str]:
        judge, start = self._judge(candidate)
        found = judge.screen(self._side(candidate), start, _ignore)
        return found.reason, found.detail

    def confirm(self, candidate: Candidate) -> tuple[Reason | None, str]:
        judge, start = self._judge(candidate)
        found = judge.confirm(self._side(candidate), start, start, 0.006, _ignore)
        return found.reason, found.detail

    def close(self) -> None:
        for judge, _ in self._judges.values():
            judge.close()

    def _judge(self, candidate: Candidate) -> tuple[CaseJudge, Side]:
        key = name, imports = candidate.declared.case, cases.imports_for(candidate)
        if key not in self._judges:
            case = Case(cases.write(self._root / f"judge-{len(self._judges)}", name, imports))
            self._judges[key] = CaseJudge(case, self._rung, CpuDevice()), Side(tree=str(case.workspace))
        return self._judges[key]

    def _side(self, candidate: Candidate) -> Side:
        return Side(tree=str(cases.write_workspace(self._root, candidate)))


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    root = tmp_path_factory.mktemp("cheats")
    root.chmod(0o755)
    found = Court(root)
    yield found
    found.close()


@pytest.mark.slow(8, only=["works_ahead_by_base", "burns_the_others_turn", "copies_in_the_kernel"])
@pytest.mark.parametrize("cheat", judged(CHEATS, lambda cheat: cheat.declared))
def test_each_cheat_is_rejected_for_its_own_reason(court: Court, cheat: Candidate) -> None:
    _expect(court, cheat, cheat.declared)


def test_the_readme_is_current() -> None:
    assert tables.is_current(), "run `python -m tests.cheats.tables`"


def test_every_family_has_a_cheat() -> None:
    declared = {cheat.declared.family for cheat in (*CHEATS, *find("gpu"))}
    assert declared == FAMILIES.keys() - set(NO_KERNEL)


def test_every_family_is_explained() -> None:
    page = (FOLDER.parents[1] / "docs" / "explanation" / "how-it-was-attacked.md").read_text()
    rows = [
        line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ") and "|" in line[2:]
    ]
    told = [row for row in rows if row in FAMILIES]
    assert sorted(told) == sorted(FAMILIES)


@pytest.mark.parametrize("name", cases.CPU)
def test_every_case_has_neighbours(tmp_path: Path, name: str) -> None:
    """What a gate cannot vary, a candidate may have in a list."""
    contract = load_contract(Case(cases.write(tmp_path, name)).contract_file)
    secret = random.Random(1)
    assert all(contract.vary(problem, secret) for problem in contract.problems.values())
    assert contract.domains


COMPILED = (
    "copied_through_memoryviews", "parallel_loops", "compiled_for_each_shape", "stops_when_nothing_moves",
    "compiled_in_the_first_call", "made_into_ufuncs", "reordered_by_fastmath", "several_packages",
    "first_of_equals_by_blocks",
)  # fmt: skip
"""By numba, or by the million: seconds each."""

UNREAD = [cheat for cheat in CHEATS if cheat.declared.unread]


@pytest.mark.slow(10, only=["copies_in_the_kernel", "library_in_compiled_code"])
@pytest.mark.slow(1, only=names(UNREAD[1::2]))
@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("cheat", judged(UNREAD, lambda cheat: cheat.declared.unread or cheat.declared))
def test_behind_the_reading_of_the_source_stands_another_wall(court: Court, cheat: Candidate) -> None:
    assert cheat.declared.unread is not None
    _expect(court, cheat, cheat.declared.unread)


@pytest.mark.slow(5, only=COMPILED)
@pytest.mark.slow(1, only=names(HONEST[1::2]))
@pytest.mark.parametrize(
    "candidate", one_of_each(HONEST, 1, alike=lambda honest: honest.declared.family, names=names(HONEST))
)
def test_honest_candidates_pass_the_gate(court: Court, candidate: Candidate) -> None:
    reason, detail = court.gate(candidate)
    assert reason is None, f"{reason}: {detail}"


def _expect(court: Court, cheat: Candidate, expected: Verdict) -> None:
    """The draw decides what a gate sees of it, and the next gate draws again; but what is confirmed is never kept."""
    if expected.stage == "confirm" and not _is_judged_to_the_end(cheat, expected):
        reason, detail = court.gate(cheat)
        assert reason is None or matches(expected, reason, detail), f"{reason}: {detail}"
        return
    ask = {"gate": court.gate, "screen": court.screen, "confirm": court.confirm}[expected.stage]
    seen = [ask(cheat)]
    while not matches(expected, *seen[-1]) and expected.stage != "confirm" and len(seen) < TRIES:
        seen.append(ask(cheat))
    assert matches(expected, *seen[-1]), seen


FOR_A_GPU, HONEST_ON_A_GPU = find("gpu"), find("honest/gpu")
REFUSED = [cheat for cheat in FOR_A_GPU if cheat.declared.reason == (Reason.POLICY,)]
OTHERS = [candidate for candidate in (*FOR_A_GPU, *HONEST_ON_A_GPU) if candidate not in REFUSED]


@pytest.mark.parametrize("cheat", REFUSED, ids=names(REFUSED))
def test_what_a_gpu_cheat_says_is_read_without_a_gpu(tmp_path: Path, cheat: Candidate) -> None:
    with pytest.raises(CandidateFault) as fault:
        cases.read_source(tmp_path, cheat)
    assert matches(cheat.declared, fault.value.reason, fault.value.detail), fault.value.detail


@pytest.mark.parametrize("candidate", OTHERS, ids=[f"{c.place.parent.parent.name}-{c.name}" for c in OTHERS])
def test_the_reading_alone_stops_no_other(tmp_path: Path, candidate: Candidate) -> None:
    cases.read_source(tmp_path, candidate)


INTERPRETED = [c for c in (*HONEST_ON_A_GPU, *FOR_A_GPU) if c.declared.interpreted]
if os.environ.get("HILLCLIMB_CHEATS") != "all":
    INTERPRETED = INTERPRETED[::4]
"""Each takes as long as it takes to compile it: so a few of them in CI, and all where HILLCLIMB_CHEATS=all."""


@pytest.fixture(scope="module")
def interpreting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CaseJudge, Path]]:
    """A judge of the GPU case where there is none."""
    root = tmp_path_factory.mktemp("interpreted")
    root.chmod(0o755)
    judge = CaseJudge(
        Case(cases.write(root, "rows")), choose_rung(trust_workspace=False), InterpreterDevice()
    )
    yield judge, root
    judge.close()


@pytest.mark.slow(8)
@pytest.mark.parametrize("candidate", INTERPRETED, ids=names(INTERPRETED))
def test_some_show_where_triton_is_interpreted(
    interpreting: tuple[CaseJudge, Path], candidate: Candidate
) -> None:
    judge, root = interpreting
    assert candidate.declared.interpreted is not None
    report = judge.gate(Side(tree=str(cases.write_workspace(root, candidate))), _ignore)
    assert matches(candidate.declared.interpreted, report.reason, report.detail), (
        f"{report.reason}: {report.detail}"
    )
