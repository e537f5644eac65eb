"""Retuning: one step of one knob, on a source that an edit made, new knobs first."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import JudgedEntry, ProposedEntry, SettledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.retune import RetuneFirst
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.knobs.knobs import KnobValue, parse_knobs
from hillclimb.harness.records import Reason
from tests.agent.sweep.synthetic import judge_next, open_ledger

KNOBS = """
TILE: {type: log-int, low: 8, high: 256, default: 32}
ORDER: {type: choice, choices: [ijk, ikj, kij], default: ijk}
"""
DEPTH = "DEPTH: {type: choice, choices: [1, 2, 4, 8], default: 4}\n"
SHARE = "SHARE: {type: float, low: 0.0, high: 1.0, default: 0.95}\n"


def make(ledger: Ledger) -> RetuneFirst:
    knobs = parse_knobs(KNOBS, Path("knobs.yaml"))
    return RetuneFirst(knobs, 0, SweepProposer(knobs, 0))


def change_source(ledger: Ledger, knobs: str, speed: float) -> None:
    edits = (Edit(path="kernel.py", content=f"# {speed}\n"), Edit(path="knobs.yaml", content=knobs))
    judge_next(ledger, Proposal(author="llm", idea="another kernel", edits=edits), speed)


def steps(ledger: Ledger, count: int) -> list[dict[str, KnobValue]]:
    found = []
    for _ in range(count):
        proposal = make(ledger).propose(ledger)
        assert proposal is not None
        found.append(dict(proposal.knobs))
        judge_next(ledger, proposal, 0.5)
    return found


def test_the_source_that_the_run_began_with_is_left_to_the_sweep(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    knobs = parse_knobs(KNOBS, Path("knobs.yaml"))
    assert make(ledger).propose(ledger) == SweepProposer(knobs, 0).propose(ledger)


def test_one_step_at_a_time_each_once_then_the_sweep(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    change_source(ledger, KNOBS, 1.5)
    found = steps(ledger, 4)
    assert sorted(map(str, found)) == sorted(
        map(str, [{"TILE": 64}, {"TILE": 16}, {"ORDER": "ikj"}, {"ORDER": "kij"}])
    )
    proposal = make(ledger).propose(ledger)
    assert proposal is not None
    assert proposal.knobs not in found


@pytest.mark.parametrize(("brought", "values"), [(DEPTH, [8, 2]), (SHARE, [0.85])])
def test_knobs_that_the_edit_brought_come_first(
    tmp_path: Path, brought: str, values: list[KnobValue]
) -> None:
    ledger = open_ledger(tmp_path)
    change_source(ledger, KNOBS + brought, 1.5)
    name = brought.partition(":")[0]
    assert steps(ledger, len(values)) == [{name: pytest.approx(value)} for value in values]


def test_a_second_change_of_the_source_begins_anew(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    change_source(ledger, KNOBS, 1.5)
    first = steps(ledger, 4)
    change_source(ledger, KNOBS, 2.5)
    assert sorted(map(str, steps(ledger, 4))) == sorted(map(str, first))


def test_it_foresees_the_steps_that_are_left_and_then_what_the_sweep_does(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    change_source(ledger, KNOBS, 1.5)
    knobs = parse_knobs(KNOBS, Path("knobs.yaml"))
    retuned = RetuneFirst(knobs, 0, SweepProposer(knobs, 0, lookahead=3))
    first = retuned.propose(ledger)
    assert first is not None
    ledger.append(ProposedEntry(n=2, time=2.0, proposal=first))
    foreseen = retuned.peek(ledger, 5)
    assert len(foreseen) == 5 and first not in foreseen
    ledger.append(JudgedEntry(n=2, time=2.0, kept=False, reason=Reason.SLOWER, screened=0.5, parent="0" * 40))
    ledger.append(SettledEntry(n=2))
    for expected in foreseen[:3]:
        assert retuned.propose(ledger) == expected
        judge_next(ledger, expected, 0.5)
