"""What a candidate is built from: values outside the domains, and together against a constraint, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.climb.candidate import CandidateBuilder
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.trees import MaterialisedTrees
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from tests.fakes.night import make_repository

KNOBS = """\
TILE: {type: log-int, low: 8, high: 64, default: 16, requires: ["TILE * UNROLL <= 64"]}
UNROLL: {type: choice, choices: [1, 2, 4], default: 1}
"""


@pytest.fixture
def builder(tmp_path: Path) -> CandidateBuilder:
    repository = Repository.open(make_repository(tmp_path / "repo"))
    return CandidateBuilder(
        repository,
        MaterialisedTrees(repository, Disk(), tmp_path / "trees"),
        "cases/demo/toy",
        ("*.py", "knobs.yaml"),
    )


def refused(builder: CandidateBuilder, knobs: dict[str, int]) -> str:
    head = builder.repository.resolve("HEAD")
    assert head
    edits = (Edit(path="knobs.yaml", content=KNOBS),)
    with pytest.raises(CandidateFault) as caught:
        builder.build(Proposal(author="llm", idea="", knobs=knobs, edits=edits), head)
    assert caught.value.reason is Reason.BAD_KNOBS
    return caught.value.detail


def test_values_that_break_a_constraint_together_are_refused_and_named(builder: CandidateBuilder) -> None:
    said = "it breaks the constraint TILE * UNROLL <= 64 (TILE={}, UNROLL={})"
    assert refused(builder, {"TILE": 64, "UNROLL": 2}) == said.format(64, 2)
    assert refused(builder, {"TILE": 32, "UNROLL": 4}) == said.format(32, 4)


def test_values_outside_their_domains_are_refused(builder: CandidateBuilder) -> None:
    assert refused(builder, {"TILE": 9}) == "TILE has no value 9 in its domain"
    assert refused(builder, {"ROWS": 9}) == "there is no knob ROWS; there are TILE, UNROLL"


def test_values_that_satisfy_it_are_built(builder: CandidateBuilder) -> None:
    head = builder.repository.resolve("HEAD")
    assert head
    edits = (Edit(path="knobs.yaml", content=KNOBS),)
    built = builder.build(Proposal(author="llm", idea="", knobs={"TILE": 32, "UNROLL": 2}, edits=edits), head)
    assert built.screened.knobs == {"TILE": "32", "UNROLL": "2"}
    assert "default: 32" in (Path(built.confirmed.tree) / "knobs.yaml").read_text()
