"""Excuses are for what is accepted, by the name that `check` prints; all others are errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.contract_mutants import LISTED
from tests.harness.judge.mutants.made import Made, everywhere, tried

NEIGHBOUR = {"rows": 6, "columns": 8}


@pytest.mark.slow(2)
def test_every_survivor_can_be_excused_by_its_name() -> None:
    made = Made(lenient=everywhere)
    accepted = tried(made, timed=("wide",), narrow=True).accepted
    assert accepted
    for slip in accepted:
        report = tried(replace(made, excused={slip.mistake: "a reason"}), timed=("wide",), narrow=True)
        assert report.excused == (slip.model_copy(update={"excuse": "a reason"}),)
        assert set(report.accepted) == set(accepted) - {slip}
        assert report.tried == len(accepted)


@pytest.mark.parametrize("name", [LISTED, "y all zeros", "the end of x left out along dimension 0"])
def test_an_excuse_for_what_is_rejected_is_needless(name: str) -> None:
    with pytest.raises(CaseError, match=r"Contract.excused: names .*, which the contract rejects; remove it"):
        tried(Made(neighbours=[NEIGHBOUR], excused={name: "a reason"}))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("the end of x left out along dimension 7", "the end of x left out along dimension [01]"),
        ("y all zeroes", "y all zeros"),
        ("inputs in fewer bits in problem smal", "inputs in fewer bits in problem small"),
    ],
)
def test_an_unknown_excuse_is_told_with_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(
        CaseError, match=f"names '{name}', which no wrong result is called; did you mean '{near}'"
    ):
        tried(Made(excused={name: "a reason"}))


def test_an_excuse_may_be_for_a_problem_that_cannot_be_run_here() -> None:
    excuses = {"inputs in fewer bits in problem wide": "a reason"}
    assert tried(Made(excused=excuses)).excused == ()
    with pytest.raises(CaseError, match="which the contract rejects"):
        tried(Made(excused=excuses), timed=("wide",), narrow=True)
