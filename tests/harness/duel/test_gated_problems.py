"""Problems that no list shows: drawn afresh for every gate, and asked there alone."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract, Problem, Work
from hillclimb.harness.case.contracts.neighbours import neighbours
from hillclimb.harness.case.sizes import remainder_of
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.gated_problems import (
    CONFIRMED_NEIGHBOURS,
    NEIGHBOURS,
    GatedProblems,
    draw_gated_problems,
    neighbours_of,
)
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge import gate
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import GateReport, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import CONTRACT, HONEST, write_case, write_workspace


def contract_of(folder: Path, vary: str) -> Contract:
    case = write_case(folder)
    old = 'return [{"n": problem["n"] + 1}, {"n": problem["n"] - 1}]'
    assert old in CONTRACT
    (case / "contract.py").write_text(CONTRACT.replace(old, vary))
    return load_contract(case / "contract.py")


def test_neighbours_have_names_that_tell_their_sizes(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, 'return [{"n": problem["n"] + 1}, {"n": 1001}]')
    found = neighbours_of(contract, ["small", "odd"], random.Random(1))
    assert found == {"small~n=38": {"n": 38}, "odd~n=1002": {"n": 1002}}, "what is listed is no neighbour"


def test_they_are_drawn_afresh_and_listed_problems_stay(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, 'return [{"n": problem["n"] + i} for i in range(1, 30)]')
    secret = random.Random(2)
    drawn = [draw_gated_problems(contract, ("small", "odd"), secret, 1e9) for _ in range(20)]
    assert all(len(gated.neighbours) == NEIGHBOURS for gated in drawn)
    assert len({gated.neighbours for gated in drawn}) > 10
    for gated in drawn:
        assert gated.listed == ("small", "odd")
        assert set(gated.neighbours) <= set(gated.contract.problems)
    assert set(contract.problems) == {"small", "odd", "timed"}


def test_a_confirmation_has_every_one_where_they_are_few(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, 'return [{"n": problem["n"] + i} for i in range(1, 5)]')
    gated = draw_gated_problems(contract, ("small", "odd"), random.Random(2), 1e9, CONFIRMED_NEIGHBOURS)
    assert len(gated.neighbours) == 8


def test_a_confirmation_asks_for_every_two_tails(tmp_path: Path) -> None:
    contract = matrices(tmp_path)
    for seed in range(5):
        gated = draw_gated_problems(contract, ("small",), random.Random(seed), 1e9, CONFIRMED_NEIGHBOURS)
        assert len(gated.neighbours) == CONFIRMED_NEIGHBOURS
        found = [gated.contract.problems[name] for name in (*gated.listed, *gated.neighbours)]
        for one, two in combinations(("m", "n", "k"), 2):
            tails = {(remainder_of(problem[one]), remainder_of(problem[two])) for problem in found}
            assert tails >= {(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)}


def test_neighbours_that_show_much_are_drawn_by_chance_too(tmp_path: Path) -> None:
    contract = matrices(tmp_path)
    drawn = [draw_gated_problems(contract, ("small",), random.Random(seed), 1e9, 12) for seed in range(40)]
    assert len({frozenset(gated.neighbours) for gated in drawn}) > 30


def test_a_chain_has_two_problems_that_differ_in_one_size(tmp_path: Path) -> None:
    gated = draw_gated_problems(matrices(tmp_path), ("small",), random.Random(3), 1e9, CONFIRMED_NEIGHBOURS)
    assert gated.drawn_chains(random.Random(1)) == [], "where none are asked for"
    chains = replace(gated, chains=9).drawn_chains(random.Random(1))
    assert len(chains) == 9
    grown = []
    for larger, smaller in chains:
        one, other = gated.contract.problems[larger], gated.contract.problems[smaller]
        apart = [key for key in one if one[key] != other[key]]
        assert len(apart) == 1
        assert one[apart[0]] > other[apart[0]]
        grown += apart
    assert {*grown} == {"m", "n", "k"}
    assert replace(gated, chains=9).drawn_chains(random.Random(2)) != chains


def matrices(folder: Path) -> Contract:
    """A contract of products, m x k times k x n, whose work is known."""
    contract = contract_of(folder, "return []")
    sizes = ("m", "n", "k")

    def vary(problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, contract.problems, sizes)

    contract.problems = {"small": dict.fromkeys(sizes, 100), "large": dict.fromkeys(sizes, 900)}
    contract.vary = vary  # type: ignore[method-assign]
    contract.work = lambda problem: Work(1, 4 * sum(problem[name] for name in sizes))  # type: ignore[method-assign]
    return contract


def test_those_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, 'return [{"n": problem["n"] + 1}]')
    gated = draw_gated_problems(contract, tuple(contract.problems), random.Random(3), 8 * 1002)
    assert set(gated.neighbours) == {"small~n=38", "odd~n=1002"}


def test_a_contract_without_any_has_none(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, "return []")
    assert draw_gated_problems(contract, ("small",), random.Random(4), 1e9).neighbours == ()


@pytest.mark.parametrize("vary", ["return None", "return [3]", "raise ValueError('no')", "return {'n': 1}"])
def test_a_slip_is_the_contracts(tmp_path: Path, vary: str) -> None:
    contract = contract_of(tmp_path, vary)
    with pytest.raises(CaseError, match=r"Contract\.vary\(small\)"):
        neighbours_of(contract, ["small"], random.Random(5))


def test_small_problems_are_called_often_or_the_smallest(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, "return []")
    assert GatedProblems(contract, tuple(contract.problems)).called_often() == ()

    def often(contract: Contract, *names: str) -> tuple[str, ...]:
        return GatedProblems(contract, names, mixed_calls=9).called_often()

    assert often(contract, *contract.problems) == tuple(contract.problems)
    large = contract.extended({"large": {"n": 1 << 20}, "larger": {"n": 1 << 21}})
    assert often(large, *large.problems) == tuple(contract.problems)
    assert often(large, "larger", "large") == ("large",)


ONCE = CandidateProcess.call

SUMS = """
import numpy as np

seen = {}


def run(x, y):
    key = x.size, int(x.view(np.int32).sum(dtype=np.int64))
    if key not in seen:
        seen[key] = 2 * x + 1
    y[...] = seen[key]
"""
"""Right whatever is new, and wrong where the values of a call before come back at other places."""


def slow_call(candidate: CandidateProcess, arena: Arena, slot: int, calls: int) -> float:
    """Takes 50 ms of this process's time: sixty of them are twice the limit."""
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    return ONCE(candidate, arena, slot, calls)


def test_many_calls_are_on_mixed_inputs_and_on_values_at_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    judge = CaseJudge(Case(write_case(tmp_path / "case")), choose_rung(trust_workspace=False), CpuDevice())
    duels = judge._duels
    few = replace(duels.draw_gated_problems(0), seeds=1)
    many = replace(few, mixed_calls=60)

    sides = {
        name: Side(tree=str(write_workspace(tmp_path / name / "workspace", source)))
        for name, source in (("sums", SUMS), ("honest", HONEST))
    }

    def check(name: str, gated: GatedProblems) -> GateReport:
        with duels.launcher.launch(sides[name]) as candidate:
            candidate.await_loaded()
            duels.compile_gated(candidate, gated, lambda progress: None)
            duels.seal([(0, candidate)])
            return judge._gate.check(candidate, gated, lambda progress: None)

    try:
        assert check("sums", few).passed
        found = check("sums", many)
        assert found.reason is Reason.WRONG_RESULT
        assert ", mixed: error is" in found.detail
        runs = [check("honest", gated).runs for gated in (few, many)]
        assert runs[0] + 60 < runs[1] < runs[0] + 120
        monkeypatch.setattr(gate, "MIXED_SECONDS", 0.0)  # as beside a contract that is slow to compute
        monkeypatch.setattr(gate, "MIN_MIXED_CALLS", 8)
        assert runs[0] + 8 <= check("honest", many).runs <= runs[0] + 16
        monkeypatch.setattr(gate, "MIXED_SECONDS", 1.5)
        monkeypatch.setattr(CandidateProcess, "call", slow_call)
        assert runs[0] + 60 < check("honest", many).runs, "time in the candidate's calls does not count"
    finally:
        judge.close()


STALE = """
import numpy as np

rooms = {}


def run(x, y):
    size = -(-x.size // 64) * 64
    if "room" not in rooms or rooms["room"].size != size:
        rooms["room"] = np.zeros(size, x.dtype)
    rooms["room"][: x.size] = x
    y[...] = 2 * x + 1
    y[-1] += rooms["room"][x.size :].any()
"""
"""Right but for what is left of a larger problem in a room that has the same size."""


def test_calls_on_two_problems_by_turns_show_what_a_call_leaves_behind(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    judge = CaseJudge(Case(write_case(tmp_path / "case")), choose_rung(trust_workspace=False), CpuDevice())
    contract = judge._duels.contract.extended({"small~n=36": {"n": 36}})
    gate, watch = judge._gate, lambda progress: None
    try:
        stale = Side(tree=str(write_workspace(tmp_path / "stale" / "workspace", STALE)))
        for chains, reason in ((0, None), (1, Reason.WRONG_RESULT)):
            with judge._duels.launcher.launch(stale) as candidate:
                gated = GatedProblems(contract, ("small",), ("small~n=36",) * chains, chains=chains)
                candidate.await_loaded()
                judge._duels.compile_gated(candidate, gated, watch)
                judge._duels.seal([(0, candidate)])
                found = gate.check(candidate, gated, watch)
                assert found.reason is reason, found.detail
    finally:
        judge.close()


class Hidden:
    """Kernels of y = 2 x + 1 that only unlisted sizes, or rare values, show to be wrong."""

    SOURCES: ClassVar = {
        "listed sizes only": (
            Reason.OUTPUT_NOT_WRITTEN,
            "def run(x, y):\n    if x.size in (37, 1001, 20_000):\n        y[...] = 2 * x + 1\n",
        ),
        "multiples of a tile": (
            Reason.OUTPUT_NOT_WRITTEN,
            "def run(x, y):\n    n = x.size if x.size in (37, 1001) else x.size // 32 * 32\n"
            "    y[:n] = 2 * x[:n] + 1\n",
        ),
        "a sample decides": (
            Reason.WRONG_RESULT,
            "import numpy as np\n\n\ndef run(x, y):\n    most = 4 * np.abs(x[::5]).max()\n"
            "    y[...] = 2 * np.clip(x, -most, most) + 1\n",
        ),
        "small for ordinary": (
            Reason.WRONG_RESULT,
            "import numpy as np\n\n\ndef run(x, y):\n    y[...] = 2 * np.clip(x, -2000, 2000) + 1\n",
        ),
    }


@pytest.mark.slow(4, but=["listed sizes only"])
@pytest.mark.parametrize("name", Hidden.SOURCES)
def test_what_is_wrong_where_no_list_looks_is_found_by_the_gate(tmp_path: Path, name: str) -> None:
    reason, source = Hidden.SOURCES[name]
    tmp_path.chmod(0o755)
    judge = CaseJudge(Case(write_case(tmp_path / "case")), choose_rung(trust_workspace=False), CpuDevice())
    try:
        honest = Side(tree=str(write_workspace(tmp_path / "honest" / "workspace", HONEST)))
        hidden = Side(tree=str(write_workspace(tmp_path / "hidden" / "workspace", source)))
        reports = [judge.gate(hidden, lambda progress: None) for _ in range(4)]
        assert reason in {report.reason for report in reports}, [report.detail for report in reports]
        report = judge.gate(honest, lambda progress: None)
        assert report.passed, report.detail
    finally:
        judge.close()
